#include "ops/sample/sample_metal.h"

#include <algorithm>
#include <numeric>

#include <cfloat>
#include "harness.h"
#include "launch.h"
#include "ops/sample/philox.h"

namespace quire::emulator::testing {
namespace {

using namespace quire::ops;

struct Token {
  double value;
  int32_t id;
  double mass = 0;
};

struct Sampled {
  std::vector<int32_t> tokens, ranks, top_ids;
  std::vector<float> logprobs, top_logprobs;
};

double canonical(double x) { return std::isnan(x) ? -INFINITY : std::min(x, double{FLT_MAX}); }

// Penalties, bias, mask and bans, as sample.h has them.
std::vector<double> adjusted(const SampleRow& row, std::vector<double> x, int32_t pending) {
  const auto exists = [&](int32_t id) { return id >= 0 && id < static_cast<int32_t>(x.size()); };
  auto history = row.history;
  const bool penalised =
      row.repetition_penalty != 1 || row.presence_penalty != 0 || row.frequency_penalty != 0;
  auto met = std::find_if(history.begin(), history.end(),
                          [&](const TokenCount& c) { return c.token == pending; });
  if (met == history.end()) met = history.insert(met, {pending, 0, false});
  ++met->in_output;
  for (const TokenCount& c : history) {
    if (!penalised || !exists(c.token)) continue;
    double& v = x[c.token];
    if (c.in_prompt || c.in_output > 0)
      v = v > 0 ? v / row.repetition_penalty : v * row.repetition_penalty;
    if (c.in_output > 0) v -= row.frequency_penalty * c.in_output + row.presence_penalty;
  }
  for (const auto& [id, bias] : row.logit_bias)
    if (exists(id)) x[id] += bias;
  for (size_t i = 0; i < x.size() && row.mask; ++i)
    if (((*row.mask)[i / 32] >> i % 32 & 1u) == 0) x[i] = -INFINITY;
  for (const int32_t id : row.banned)
    if (exists(id)) x[id] = -INFINITY;
  for (const auto& [before, id] : row.banned_after)
    if (before == pending && exists(id)) x[id] = -INFINITY;
  return x;
}

std::vector<Token> ranked(const std::vector<double>& x) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < x.size(); ++i)
    if (canonical(x[i]) > -INFINITY) tokens.push_back({canonical(x[i]), static_cast<int32_t>(i)});
  std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
  });
  return tokens;
}

int32_t draw(const SampleRow& row, const std::vector<double>& x) {
  auto tokens = ranked(x);
  if (tokens.empty()) return -1;
  if (row.temperature < 1e-5f) return tokens[0].id;
  if (row.top_k > 0 && tokens.size() > size_t(row.top_k)) tokens.resize(row.top_k);
  double sum = 0;
  const double peak = tokens[0].value;
  for (Token& t : tokens) sum += t.mass = std::exp((t.value - peak) / row.temperature);
  double reached = 0;
  for (size_t i = 0; i < tokens.size() && row.top_p < 1; ++i)
    if ((reached += tokens[i].mass) >= row.top_p * sum) tokens.resize(i + 1);
  std::erase_if(tokens, [&](const Token& t) { return t.mass < row.min_p; });
  std::sort(tokens.begin(), tokens.end(),
            [](const Token& a, const Token& b) { return a.id < b.id; });
  sum = 0;
  for (const Token& t : tokens) sum += t.mass;
  double left = sample_uniform(row.seed, row.position) * sum;
  for (const Token& t : tokens)
    if ((left -= t.mass) < 0) return t.id;
  return tokens.back().id;
}

Sampled run_sample(const std::vector<SampleRow>& rows, const std::vector<float>& logits, int width,
                   std::vector<int32_t> previous, bool all_orders = true) {
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t vocab = static_cast<int64_t>(logits.size()) / count;
  SampleMetal s = sample_metal(rows, vocab, width, !previous.empty());
  std::vector<float> x = logits, scratch(logits.size(), NAN);
  Sampled out = {std::vector<int32_t>(count, -7), std::vector<int32_t>(count, -7),
                 std::vector<int32_t>(count * width, -7), std::vector<float>(count, NAN),
                 std::vector<float>(count * width, NAN)};
  const Launch launch = launch_of(s.call, {{kSampleParams, buffer_of(s.params)},
                                           {kSampleRows, buffer_of(s.rows)},
                                           {kSampleLogits, buffer_of(x)},
                                           {kSamplePrevious, buffer_of(previous)},
                                           {kSampleHistory, buffer_of(s.history)},
                                           {kSampleBias, buffer_of(s.bias)},
                                           {kSampleBanned, buffer_of(s.banned)},
                                           {kSampleBannedAfter, buffer_of(s.banned_after)},
                                           {kSampleMasks, buffer_of(s.masks)},
                                           {kSampleScratch, buffer_of(scratch)},
                                           {kSampleTokens, buffer_of(out.tokens)},
                                           {kSampleLogprobs, buffer_of(out.logprobs)},
                                           {kSampleRanks, buffer_of(out.ranks)},
                                           {kSampleTopIds, buffer_of(out.top_ids)},
                                           {kSampleTopLogprobs, buffer_of(out.top_logprobs)}});
  all_orders ? run_in_all_orders(launch) : run(launch);
  return out;
}

// Against float64: tokens, and of rows that ask for them logprobs, ranks and the best tokens.
void check(const std::vector<SampleRow>& rows, const std::vector<float>& logits, int width = 1,
           const std::vector<int32_t>& previous = {}) {
  const Sampled got = run_sample(rows, logits, width, previous);
  const size_t vocab = logits.size() / rows.size();
  for (size_t r = 0; r < rows.size(); ++r) {
    SCOPED_TRACE(r);
    const SampleRow& row = rows[r];
    const std::vector<double> raw(logits.begin() + r * vocab, logits.begin() + (r + 1) * vocab);
    const int32_t pending =
        row.pending_row >= 0 && !previous.empty() ? previous[row.pending_row] : -1;
    const int32_t want =
        row.forced_token >= 0 ? row.forced_token : draw(row, adjusted(row, raw, pending));
    EXPECT_EQ(got.tokens[r], want);
    if (row.num_top_logprobs < 0) {
      EXPECT_EQ(got.ranks[r], 0);
      EXPECT_EQ(got.logprobs[r], 0);
      continue;
    }
    const auto best = ranked(raw);
    double sum = 0;
    for (const Token& t : best) sum += std::exp(t.value - best[0].value);
    const auto logprob = [&](double x) { return x - best[0].value - std::log(sum); };
    if (want >= 0) {
      const auto greater = std::count_if(
          best.begin(), best.end(), [&](const Token& t) { return t.value > canonical(raw[want]); });
      EXPECT_EQ(got.ranks[r], 1 + greater);
      EXPECT_NEAR(got.logprobs[r], logprob(canonical(raw[want])), 1e-5);
    }
    for (int i = 0; i < width; ++i) {
      const bool asked = i < row.num_top_logprobs && i < static_cast<int>(best.size());
      EXPECT_EQ(got.top_ids[r * width + i], asked ? best[i].id : -1);
      EXPECT_NEAR(got.top_logprobs[r * width + i], asked ? logprob(best[i].value) : 0, 1e-5);
    }
  }
}

std::vector<float> some_logits(size_t rows, int vocab, uint32_t seed) {
  auto x = random_floats(rows * vocab, FloatType::kF32, seed, 3.0f);
  for (size_t i = 0; i < x.size(); i += 7) x[i] = std::round(x[i]);  // ties
  return x;
}

TEST(MetalSample, DrawsByEachRule) {
  std::vector<SampleRow> rows = {
      {},
      {.temperature = 1.0f, .seed = 1},
      {.temperature = 0.3f, .seed = 2, .position = int64_t{1} << 40},
      {.temperature = 1.0f, .top_k = 1, .seed = 3},
      {.temperature = 2.0f, .top_k = 20, .seed = uint64_t{7} << 50},
      {.temperature = 1.0f, .top_p = 0.5f, .seed = 5},
      {.temperature = 1.5f, .top_k = 100, .top_p = 0.9f, .seed = 6},
      {.temperature = 1.0f, .top_p = 0.0f, .seed = 7},
      {.temperature = 1.0f, .min_p = 0.1f, .seed = 8},
      {.temperature = 0.8f, .top_k = 50, .top_p = 0.95f, .min_p = 0.05f, .seed = 9}};
  check(rows, some_logits(rows.size(), 1111, 1));
}

TEST(MetalSample, PenaltiesBiasMaskAndBans) {
  constexpr int kVocab = 300;
  auto mask = std::make_shared<std::vector<uint32_t>>((kVocab + 31) / 32, 0x0F0F00FFu);
  std::vector<SampleRow> rows = {
      {.repetition_penalty = 2.0f, .history = {{4, 1, false}, {9, 0, true}, {77, 3, true}}},
      {.temperature = 1.0f,
       .presence_penalty = 1.0f,
       .frequency_penalty = 0.5f,
       .seed = 1,
       .history = {{12, 2, false}, {13, 1, true}, {900, 1, false}},
       .pending_row = 0},
      {.temperature = 1.0f,
       .frequency_penalty = 3.0f,
       .seed = 2,
       .history = {{5, 1, false}},
       .pending_row = 1},
      {.logit_bias = {{17, 5.0f}, {17, 4.0f}, {18, 9.5f}, {-1, 1.0f}, {300, 100.0f}}},
      {.temperature = 1.0f, .seed = 3, .mask = mask},
      {.temperature = 0.5f, .top_k = 3, .seed = 4, .banned = {0, 1, 2, 3, -1, 300}, .mask = mask},
      {.temperature = 1.0f,
       .seed = 5,
       .pending_row = 1,
       .banned_after = {{5, 40}, {6, 41}, {5, 400}}}};
  auto logits = some_logits(rows.size(), kVocab, 2);
  logits[6 * kVocab + 40] = logits[6 * kVocab + 41] = 30;
  check(rows, logits, 1, {12, 5});
}

// The token that is still on the device: one more copy of it in the history, or a new entry.
TEST(MetalSample, APendingTokenCountsOnce) {
  constexpr int kVocab = 64;
  std::vector<SampleRow> rows(2, SampleRow{.presence_penalty = 1.0f, .pending_row = 0});
  rows[0].history = {{12, 1, false}};
  std::vector<float> logits(rows.size() * kVocab, -100.0f);
  logits[12] = 10, logits[13] = 8.5f;                    // 9 is left of it, not 8
  logits[kVocab + 12] = 10, logits[kVocab + 13] = 9.5f;  // 9 is left of it
  check(rows, logits, 1, {12});
  EXPECT_EQ(run_sample(rows, logits, 1, {12}, false).tokens, (std::vector<int32_t>{12, 13}));
}

TEST(MetalSample, Logprobs) {
  std::vector<SampleRow> rows = {
      {.num_top_logprobs = 0},
      {.num_top_logprobs = 5},
      {.forced_token = 33, .num_top_logprobs = 2},
      {.forced_token = 2},
      {.temperature = 1.0f, .seed = 1, .banned = {3}, .num_top_logprobs = 3},
      {}};
  check(rows, some_logits(rows.size(), 100, 3), 5);
}

TEST(MetalSample, LogitsThatAreNotNumbers) {
  std::vector<SampleRow> rows(6, SampleRow{.temperature = 1.0f, .seed = 3, .num_top_logprobs = 2});
  constexpr int kVocab = 40;
  std::vector<float> logits(rows.size() * kVocab, -INFINITY);
  for (int i = 0; i < kVocab; ++i)
    logits[kVocab + i] = i % 3 == 0 ? NAN : static_cast<float>(i % 5);
  logits[2 * kVocab + 7] = INFINITY;
  logits[2 * kVocab + 8] = 1;
  for (int i = 0; i < kVocab; ++i) logits[3 * kVocab + i] = -0.0f;
  logits[4 * kVocab + 39] = -5;
  for (int i = 0; i < kVocab; ++i) logits[5 * kVocab + i] = 2;
  rows[0].num_top_logprobs = -1;  // nothing finite
  rows[3].top_k = 5;              // ties go to the lower id
  rows[5].top_p = 0.3f;
  check(rows, logits, 2);
}

TEST(MetalSample, SizesOfVocabularies) {
  for (const int vocab : {1, 2, 31, 32, 33, 1024, 1025, 3000})
    check({{.temperature = 1.0f, .seed = 11}, {.temperature = 1.0f, .top_k = vocab, .seed = 12}},
          some_logits(2, vocab, 4));
  EXPECT_THROW(sample_metal({{}}, (1 << 20) + 1, 1, false), std::invalid_argument);
}

// Each row alone has the token that it has among others.
TEST(MetalSample, RowsAreIndependent) {
  std::vector<SampleRow> rows;
  for (uint64_t i = 0; i < 6; ++i) rows.push_back({.temperature = 1.0f, .top_p = 0.9f, .seed = i});
  const auto logits = some_logits(rows.size(), 500, 6);
  const Sampled all = run_sample(rows, logits, 1, {}, false);
  for (size_t r = 0; r < rows.size(); ++r) {
    const std::vector<float> own(logits.begin() + r * 500, logits.begin() + (r + 1) * 500);
    EXPECT_EQ(run_sample({rows[r]}, own, 1, {}, false).tokens[0], all.tokens[r]);
  }
}

}  // namespace
}  // namespace quire::emulator::testing
