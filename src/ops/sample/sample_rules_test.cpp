#include "ops/sample/sample_test_util.h"

// What each parameter means, by examples worked out by hand.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::shared_ptr<const std::vector<uint32_t>> mask_of(int64_t vocab, std::vector<int32_t> allowed) {
  auto mask = std::make_shared<std::vector<uint32_t>>((vocab + 31) / 32);
  for (const int32_t id : allowed) (*mask)[id / 32] |= 1u << (id % 32);
  return mask;
}

// The tokens that 4,000 draws reach.
std::vector<int32_t> support(const std::vector<float>& logits, SampleRow row) {
  constexpr int kDraws = 4000;
  std::vector<float> values;
  std::vector<SampleRow> rows;
  for (int r = 0; r < kDraws; ++r) {
    values.insert(values.end(), logits.begin(), logits.end());
    row.position = r;
    rows.push_back(row);
  }
  auto tokens = run_sample(make_context(2), logits_array(values, kDraws), rows).tokens;
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

using Ids = std::vector<int32_t>;

TEST(SampleRules, GreedyTakesTheLowestIdOfTheBest) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const int first : {0, 1, 15, 16, 127, 128, 300, 998}) {
      std::vector<float> logits(1000, 1.0f);
      logits[first] = logits[999] = 2.0f;
      EXPECT_EQ(token_of(logits, {}), first) << isa;
    }
  }
}

TEST(SampleRules, MinusZeroAndDenormalsTieWithZero) {
  EXPECT_EQ(token_of({-1.0f, -0.0f, 0.0f, 1e-40f}, {}), 1);
  EXPECT_EQ(support({-9.0f, -0.0f, 0.0f, 1e-40f, -1e-40f}, {.temperature = 1, .top_k = 3}),
            Ids({1, 2, 3}));
}

TEST(SampleRules, ATinyTemperatureIsGreedyAndALowOneDoesNotOverflow) {
  const std::vector<float> logits = {0.0f, 3e38f, -3e38f, 2e38f};
  EXPECT_EQ(token_of(logits, {.temperature = 1e-30f}), 1);
  EXPECT_EQ(support(logits, {.temperature = 1e-5f}), Ids({1}));
  EXPECT_EQ(support({1.0f, 1.0f, 0.0f}, {.temperature = 1e-5f}), Ids({0, 1}));
  EXPECT_EQ(support({1.0f, 900.0f, -700.0f}, {.temperature = kInf}), Ids({0, 1, 2}));
}

TEST(SampleRules, TopKKeepsLowIdsAmongTies) {
  const std::vector<float> logits = {1, 2, 1, 3, 1, 1, 2};
  const auto kept = [&](int32_t k) { return support(logits, {.temperature = 1, .top_k = k}); };
  EXPECT_EQ(kept(1), Ids({3}));
  EXPECT_EQ(kept(2), Ids({1, 3}));
  EXPECT_EQ(kept(4), Ids({0, 1, 3, 6}));
  EXPECT_EQ(kept(0).size(), 7u);
  EXPECT_EQ(kept(7).size(), 7u);
  EXPECT_EQ(kept(100).size(), 7u);
}

// Probabilities 0.5, 0.3, 0.15, 0.05: a token stays while those before it hold less than top_p.
TEST(SampleRules, TopPKeepsTheShortestListWithTheMass) {
  const std::vector<float> logits = {std::log(0.15f), std::log(0.5f), std::log(0.05f),
                                     std::log(0.3f)};
  const auto kept = [&](float p) { return support(logits, {.temperature = 1, .top_p = p}); };
  EXPECT_EQ(kept(0.0f), Ids({1}));
  EXPECT_EQ(kept(0.49f), Ids({1}));
  EXPECT_EQ(kept(0.51f), Ids({1, 3}));
  EXPECT_EQ(kept(0.81f), Ids({0, 1, 3}));
  EXPECT_EQ(kept(0.96f), Ids({0, 1, 2, 3}));
  // top_k comes first: of 0.5 and 0.3 alone, the best one holds 0.625.
  EXPECT_EQ(support(logits, {.temperature = 1, .top_k = 2, .top_p = 0.6f}), Ids({1}));
  EXPECT_EQ(support(logits, {.temperature = 1, .top_k = 2, .top_p = 0.65f}), Ids({1, 3}));
}

TEST(SampleRules, MinPIsRelativeToTheBestAfterTemperature) {
  const std::vector<float> logits = {std::log(0.15f), std::log(0.5f), std::log(0.05f),
                                     std::log(0.3f)};
  const auto kept = [&](float p, float temperature) {
    return support(logits, {.temperature = temperature, .min_p = p});
  };
  EXPECT_EQ(kept(0.61f, 1), Ids({1}));
  EXPECT_EQ(kept(0.59f, 1), Ids({1, 3}));
  EXPECT_EQ(kept(0.29f, 1), Ids({0, 1, 3}));
  EXPECT_EQ(kept(0.59f, 2), Ids({1, 3}));  // 0.3 / 0.5 becomes 0.775, 0.15 / 0.5 becomes 0.548
  EXPECT_EQ(kept(0.54f, 2), Ids({0, 1, 3}));
  EXPECT_EQ(kept(1.0f, 1), Ids({1}));
  EXPECT_EQ(kept(2.0f, 1), Ids({1}));
}

// As vLLM: repetition on prompt and output, once; frequency per copy and presence once, on the
// output only.
TEST(SampleRules, PenaltiesHitTheRightTokens) {
  const TokenCount prompt{.token = 0, .in_output = 0, .in_prompt = true};
  const TokenCount output{.token = 0, .in_output = 3, .in_prompt = false};
  const auto wins = [](float other, const SampleRow& row) {
    return token_of({4.0f, other}, row) == 0;
  };
  EXPECT_TRUE(wins(1.9f, {.repetition_penalty = 2, .history = {prompt}}));
  EXPECT_FALSE(wins(2.1f, {.repetition_penalty = 2, .history = {prompt}}));
  EXPECT_TRUE(wins(1.9f, {.repetition_penalty = 2, .history = {output}}));
  EXPECT_FALSE(wins(2.1f, {.repetition_penalty = 2, .history = {output}}));
  EXPECT_TRUE(wins(3.9f, {.presence_penalty = 1, .history = {prompt}}));
  EXPECT_TRUE(wins(2.9f, {.presence_penalty = 1, .history = {output}}));
  EXPECT_FALSE(wins(3.1f, {.presence_penalty = 1, .history = {output}}));
  EXPECT_TRUE(wins(3.9f, {.frequency_penalty = 1, .history = {prompt}}));
  EXPECT_TRUE(wins(0.9f, {.frequency_penalty = 1, .history = {output}}));
  EXPECT_FALSE(wins(1.1f, {.frequency_penalty = 1, .history = {output}}));
  // A negative logit is multiplied: -4 becomes -8.
  EXPECT_EQ(token_of({-4.0f, -7.9f}, {.repetition_penalty = 2, .history = {prompt}}), 1);
  EXPECT_EQ(token_of({-4.0f, -8.1f}, {.repetition_penalty = 2, .history = {prompt}}), 0);
  // First repetition, then the others: 4 / 2 - 1, not (4 - 1) / 2.
  const SampleRow both{.repetition_penalty = 2, .presence_penalty = 1, .history = {output}};
  EXPECT_TRUE(wins(0.9f, both));
  EXPECT_FALSE(wins(1.1f, both));
}

TEST(SampleRules, APendingTokenCountsAsIfItWereInTheHistory) {
  std::mt19937 random(5);
  const int vocab = 500, rows = 300;
  std::vector<float> values(vocab * rows);
  for (float& v : values) v = std::normal_distribution<float>(0, 1)(random);
  std::vector<int32_t> previous;
  std::vector<SampleRow> with_pending, with_history;
  for (int r = 0; r < rows; ++r) {
    SampleRow row = random_row(random, vocab);
    row.forced_token = -1;
    row.banned_after.clear();
    row.frequency_penalty = 0.5f, row.repetition_penalty = 1.2f;
    const bool known = r % 2;
    previous.push_back(known ? row.history.front().token : 499 - r);
    with_history.push_back(row);
    if (known) {
      ++with_history.back().history.front().in_output;
    } else {
      std::erase_if(row.history, [&](const TokenCount& c) { return c.token == 499 - r; });
      with_history.back().history = row.history;
      with_history.back().history.push_back({.token = 499 - r, .in_output = 1});
    }
    row.pending_row = r;
    with_pending.push_back(row);
  }
  const mx::array logits = logits_array(values, rows);
  const mx::array tokens(previous.data(), {rows}, mx::int32);
  const Context context = make_context(2);
  EXPECT_EQ(run_sample(context, logits, with_pending, tokens),
            run_sample(context, logits, with_history));
  auto without = with_pending;
  for (auto& row : without) row.pending_row = -1;
  EXPECT_NE(run_sample(context, logits, with_pending, tokens),
            run_sample(context, logits, without));
}

TEST(SampleRules, BiasMaskAndBansApplyInThatOrder) {
  const std::vector<float> logits = {5, 4, 3, 2};
  EXPECT_EQ(token_of(logits, {.logit_bias = {{2, 2.5f}}}), 2);
  EXPECT_EQ(token_of(logits, {.logit_bias = {{2, 1.5f}, {2, 1.0f}}}), 2);
  EXPECT_EQ(token_of(logits, {.mask = mask_of(4, {1, 3})}), 1);
  EXPECT_EQ(token_of(logits, {.logit_bias = {{0, 100.0f}}, .mask = mask_of(4, {3})}), 3);
  EXPECT_EQ(token_of(logits, {.logit_bias = {{0, 100.0f}}, .banned = {0}}), 1);
  EXPECT_EQ(token_of(logits, {.banned = {0, 1, 2}}), 3);
  EXPECT_EQ(token_of(logits, {.logit_bias = {{9, 1.0f}, {-1, 1.0f}}, .banned = {77, -5}}), 0);
  const SampleRow unknown{.presence_penalty = 1, .history = {{.token = 9, .in_output = 1}}};
  EXPECT_EQ(token_of(logits, unknown), 0);
  EXPECT_EQ(support(logits, {.temperature = 1, .mask = mask_of(4, {1, 2})}), Ids({1, 2}));
  EXPECT_EQ(support(logits, {.temperature = 1, .top_k = 2, .banned = {0}}), Ids({1, 2}));
}

TEST(SampleRules, APendingTokenBansWhatMayNotFollowIt) {
  const std::vector<float> logits = {5, 4, 3, 2};
  const std::vector<std::pair<int32_t, int32_t>> pairs = {{7, 0},  {9, 0},  {9, 1},
                                                          {-1, 0}, {9, 44}, {9, -3}};
  const auto after = [&](int32_t pending, int32_t pending_row, int32_t forced = -1) {
    const SampleRow row{.pending_row = pending_row, .banned_after = pairs, .forced_token = forced};
    return run_sample(make_context(1), logits_array(logits, 1), {row},
                      mx::array({pending}, {1}, mx::int32))
        .tokens[0];
  };
  EXPECT_EQ(after(8, 0), 0);
  EXPECT_EQ(after(7, 0), 1);
  EXPECT_EQ(after(9, 0), 2);
  EXPECT_EQ(after(9, -1), 0);  // nothing is pending
  EXPECT_EQ(after(-1, 0), 0);  // the sequence has ended
  EXPECT_EQ(after(9, 0, 1), 1);
}

// A mask whose words are all ones, all zeros and mixed; the last word is cut by the vocabulary.
TEST(SampleRules, AMaskCoversItsLastWord) {
  std::vector<float> logits(100, 0.0f);
  logits[97] = 1;
  for (const int32_t id : {0, 31, 32, 64, 95, 96, 99})
    EXPECT_EQ(token_of(logits, {.mask = mask_of(100, {id})}), id);
  auto mask = mask_of(100, {97, 98});
  EXPECT_EQ(token_of(logits, {.mask = mask}), 97);
}

TEST(SampleRules, NothingToSampleIsNoToken) {
  const SampleRow plain, hot{.temperature = 1},
      filtered{.temperature = 1, .top_k = 2, .top_p = 0.5f};
  for (SampleRow row : {plain, hot, filtered}) {
    EXPECT_EQ(token_of({kNan, -kInf, kNan}, row), -1);
    row.banned = {0, 1, 2};
    EXPECT_EQ(token_of({1, 2, 3}, row), -1);
    row.banned.clear();
    row.mask = mask_of(3, {});
    EXPECT_EQ(token_of({1, 2, 3}, row), -1);
  }
}

TEST(SampleRules, WithoutAFiniteLogitThereAreNoBestTokens) {
  for (const std::vector<float>& logits : {std::vector<float>(200, kNan), {-kInf, kNan, -kInf}}) {
    const SampleRow row{.num_top_logprobs = 2};
    const Sampled out = run_sample(make_context(1), logits_array(logits, 1), {row});
    EXPECT_EQ(out.tokens[0], -1);
    EXPECT_EQ(out.top_ids, Ids({-1, -1}));
  }
}

TEST(SampleRules, NanIsNeverSampledAndInfinityIsTheGreatest) {
  EXPECT_EQ(token_of({kNan, 1, kNan}, {}), 1);
  EXPECT_EQ(support({kNan, 1, kNan, 0.5f, -kInf}, {.temperature = 1}), Ids({1, 3}));
  EXPECT_EQ(support({kNan, 1, kNan, 0.5f, -kInf}, {.temperature = 1, .top_k = 4}), Ids({1, 3}));
  EXPECT_EQ(token_of({0, kInf, 1, kInf}, {}), 1);
  EXPECT_EQ(support({0, kInf, 1, kInf}, {.temperature = 1}), Ids({1, 3}));
  EXPECT_EQ(support({0, kInf, 1, kInf}, {.temperature = 1, .top_p = 0.9f}), Ids({1, 3}));
}

// Logprobs are of the model's logits: neither penalties nor temperature show in them.
TEST(SampleRules, LogprobsAreOfTheRawLogits) {
  const std::vector<float> logits = {std::log(0.2f), std::log(0.5f), std::log(0.1f),
                                     std::log(0.2f)};
  const SampleRow row{.temperature = 0,
                      .presence_penalty = 50,
                      .history = {{.token = 1, .in_output = 1}},
                      .num_top_logprobs = 3};
  const Sampled out = run_sample(make_context(1), logits_array(logits, 1), {row});
  EXPECT_EQ(out.tokens[0], 0);
  EXPECT_NEAR(out.logprobs[0], std::log(0.2), 1e-6);
  EXPECT_EQ(out.ranks[0], 2);  // token 3 ties: only greater ones count
  EXPECT_EQ(out.top_ids, Ids({1, 0, 3}));
  EXPECT_NEAR(out.top_logprobs[0], std::log(0.5), 1e-6);
}

TEST(SampleRules, AForcedTokenIsScoredWhateverTheOtherParametersSay) {
  const std::vector<float> logits = {1, 2, 3, kNan, -kInf};
  const double total = std::log(std::exp(1.0) + std::exp(2.0) + std::exp(3.0));
  for (const int32_t id : {0, 1, 2}) {
    const SampleRow row{
        .temperature = 1, .banned = {id}, .forced_token = id, .num_top_logprobs = 0};
    const Sampled out = run_sample(make_context(1), logits_array(logits, 1), {row});
    EXPECT_EQ(out.tokens[0], id);
    EXPECT_NEAR(out.logprobs[0], id + 1 - total, 1e-6);
    EXPECT_EQ(out.ranks[0], 3 - id);
    EXPECT_EQ(out.top_ids, Ids({-1}));
  }
  for (const int32_t id : {3, 4}) {
    const SampleRow row{.forced_token = id, .num_top_logprobs = 5};
    const Sampled out = run_sample(make_context(1), logits_array(logits, 1), {row});
    EXPECT_EQ(out.logprobs[0], -kInf);
    EXPECT_EQ(out.ranks[0], 4);
    EXPECT_EQ(out.top_ids, Ids({2, 1, 0, -1, -1}));
  }
}

TEST(SampleRules, RowsThatDidNotAskGetNoLogprobs) {
  const std::vector<float> logits = {1, 2, 3, 1, 2, 3};
  const Sampled out = run_sample(make_context(1), logits_array(logits, 2),
                                 {{.num_top_logprobs = -1}, {.num_top_logprobs = 2}});
  EXPECT_EQ(out.width, 2);
  EXPECT_EQ(out.top_ids, Ids({-1, -1, 2, 1}));
  EXPECT_EQ(out.ranks, Ids({0, 1}));
  EXPECT_EQ(out.logprobs[0], 0.0f);
  EXPECT_LT(out.logprobs[1], 0.0f);
}

}  // namespace
}  // namespace quire::ops
