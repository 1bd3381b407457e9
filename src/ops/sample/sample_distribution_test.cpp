#include "ops/sample/philox.h"
#include "ops/sample/sample_test_util.h"

// That draws follow the distribution they claim, and the generator its published values.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// The known answers that come with the Random123 library (kat_vectors, philox4x32 10).
TEST(Philox, GivesThePublishedValues) {
  using Block = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, UniformUsesAllOfSeedAndPosition) {
  const double base = sample_uniform(1, 1);
  EXPECT_NE(sample_uniform(1 | 1ull << 63, 1), base);
  EXPECT_NE(sample_uniform(1, 1 | int64_t{1} << 40), base);
  EXPECT_EQ(sample_uniform(0, 0), std::ldexp(0xe169c58d6627e8d5 >> 11, -53));
  double sum = 0;
  for (int64_t i = 0; i < 100000; ++i) {
    const double u = sample_uniform(42, i);
    ASSERT_TRUE(u >= 0 && u < 1);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000, 0.5, 0.005);  // five standard deviations
}

constexpr int kDraws = 20000;

// The chi-square statistic of kDraws draws at positions 0, 1, ... against `expected`, less its
// mean, in standard deviations. Tokens expected less than 5 times are put together.
double surprise(const std::vector<float>& logits, SampleRow row,
                const std::vector<double>& expected) {
  const auto vocab = static_cast<int>(logits.size());
  const mx::array repeated =
      mx::contiguous(mx::broadcast_to(logits_array(logits, 1), {kDraws, vocab}));
  std::vector<SampleRow> rows(kDraws, row);
  for (int r = 0; r < kDraws; ++r) rows[r].position = r;
  std::vector<int> seen(vocab, 0);
  for (const int32_t token : run_sample(make_context(2), repeated, rows).tokens) ++seen[token];
  double statistic = 0, rare = 0, rare_seen = 0;
  int cells = 0;
  const auto add = [&](double e, double n) {
    statistic += (n - e) * (n - e) / e;
    ++cells;
  };
  for (int i = 0; i < vocab; ++i) {
    const double e = expected[i] * kDraws;
    if (e == 0) {
      EXPECT_EQ(seen[i], 0) << "token " << i << " was excluded";
    }
    if (e >= 5) {
      add(e, seen[i]);
    } else {
      rare += e;
      rare_seen += seen[i];
    }
  }
  if (rare > 0) add(rare, rare_seen);
  return cells < 2 ? 0 : (statistic - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
}

struct Token {
  double p;
  int id;
};

// Probabilities of softmax(logits / T), then `keep` (best first) drops some, renormalised.
template <class Keep>
std::vector<double> distribution(const std::vector<float>& logits, double temperature,
                                 const Keep& keep) {
  std::vector<Token> tokens;
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    tokens.push_back({std::exp(logits[i] / temperature), static_cast<int>(i)});
    total += tokens.back().p;
  }
  for (Token& t : tokens) t.p /= total;
  std::stable_sort(tokens.begin(), tokens.end(), [](Token a, Token b) { return a.p > b.p; });
  keep(tokens);
  total = 0;
  for (const Token& t : tokens) total += t.p;
  std::vector<double> result(logits.size(), 0.0);
  for (const Token& t : tokens) result[t.id] = t.p / total;
  return result;
}

std::vector<float> some_logits(int vocab) {
  std::mt19937 random(static_cast<uint32_t>(vocab));
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::vector<float> logits(vocab);
  for (float& x : logits) x = normal(random);
  return logits;
}

TEST(SampleDistribution, FollowsTheTemperature) {
  for (const int vocab : {2, 40, 700})
    for (const float temperature : {0.5f, 1.0f, 1.7f}) {
      const auto logits = some_logits(vocab);
      const auto expected = distribution(logits, temperature, [](auto&) {});
      EXPECT_LT(std::abs(surprise(logits, {.temperature = temperature, .seed = 1}, expected)), 4);
      if (vocab == 700 && temperature == 1.0f) {  // the test can fail: 10% more heat shows
        EXPECT_GT(surprise(logits, {.temperature = 1.1f, .seed = 1}, expected), 5);
      }
    }
}

TEST(SampleDistribution, FollowsTopK) {
  const auto logits = some_logits(300);
  for (const int k : {2, 10, 120}) {
    const auto expected = distribution(logits, 1.2, [&](auto& tokens) { tokens.resize(k); });
    const SampleRow row{.temperature = 1.2f, .top_k = k, .seed = 2};
    EXPECT_LT(std::abs(surprise(logits, row, expected)), 4);
  }
}

TEST(SampleDistribution, FollowsTopP) {
  const auto logits = some_logits(300);
  for (const float p : {0.3f, 0.8f, 0.95f}) {
    const auto expected = distribution(logits, 0.9, [&](auto& tokens) {
      double above = 0;
      size_t kept = 0;
      while (kept < tokens.size() && above < p) above += tokens[kept++].p;
      tokens.resize(kept);
    });
    const SampleRow row{.temperature = 0.9f, .top_p = p, .seed = 3};
    EXPECT_LT(std::abs(surprise(logits, row, expected)), 4);
  }
}

TEST(SampleDistribution, FollowsMinP) {
  const auto logits = some_logits(300);
  for (const float p : {0.5f, 0.1f, 0.01f}) {
    const auto expected = distribution(logits, 1.1, [&](auto& tokens) {
      const double bound = p * tokens.front().p;
      std::erase_if(tokens, [&](const Token& t) { return t.p < bound; });
    });
    const SampleRow row{.temperature = 1.1f, .min_p = p, .seed = 4};
    EXPECT_LT(std::abs(surprise(logits, row, expected)), 4);
  }
}

// Seeds are as independent as positions.
TEST(SampleDistribution, FollowsOverSeeds) {
  std::vector<SampleRow> rows(kDraws, {.temperature = 1, .position = 17});
  for (int r = 0; r < kDraws; ++r) rows[r].seed = static_cast<uint64_t>(r);
  const mx::array flat = mx::zeros({kDraws, 10}, mx::float32);
  std::vector<double> seen(10, 0.0);
  for (const int32_t token : run_sample(make_context(2), flat, rows).tokens) ++seen[token];
  double statistic = 0;
  for (const double n : seen) statistic += (n - kDraws / 10.0) * (n - kDraws / 10.0) * 10 / kDraws;
  EXPECT_LT(statistic, 9 + 4 * std::sqrt(18.0));
}

}  // namespace
}  // namespace quire::ops
