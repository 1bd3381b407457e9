#include "ops/sample/sample.h"

#include "ops/sample/sample_cpu.h"
#include "ops/sample/sample_test_util.h"

// The kernel against the reference, and against itself under other batches, threads and
// instruction sets.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// A decision this near (as a share of the mass) to falling otherwise may: the kernel's weights are
// float32, 2^-24 = 6e-8 off at best. Rare: no row of 30,000 random ones made use of it.
constexpr double kRounding = 1e-7;

struct Case {
  mx::array logits = mx::array(0.0f), previous = mx::array({0, 0, 0}, {3}, mx::int32);
  std::vector<SampleRow> rows;
};

// Random rows over random logits whose spread goes from flat to peaked; coarse ones have ties.
Case random_case(int rows, int vocab, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  Case c;
  std::vector<int32_t> previous;
  for (int r = 0; r < rows; ++r) {
    std::normal_distribution<float> normal(0.0f, 0.5f + static_cast<float>(r % 4) * 1.5f);
    for (int i = 0; i < vocab; ++i) {
      const float x = normal(random);
      values.push_back(r % 3 == 0 ? std::round(x * 2) / 2 : x);
    }
    c.rows.push_back(random_row(random, vocab));
    previous.push_back(r % 5 == 0 ? -1 : static_cast<int32_t>(random() % vocab));
    if (r % 2) c.rows.back().pending_row = r;
  }
  c.logits = logits_array(values, rows);
  c.previous = mx::array(previous.data(), {rows}, mx::int32);
  mx::eval(c.logits, c.previous);
  return c;
}

// Compares row r with the reference. Returns whether another token was excused.
bool expect_row(const Case& c, const Sampled& actual, int64_t r) {
  const int64_t vocab = c.logits.shape(1);
  const SampleRow& row = c.rows[r];
  const int32_t pending = row.pending_row >= 0 ? c.previous.data<int32_t>()[row.pending_row] : -1;
  std::vector<int32_t> ids(actual.width, -1);
  std::vector<float> logprobs(actual.width, 0.0f);
  SampledRow expected{.top_ids = ids, .top_logprobs = logprobs};
  const double margin =
      sample_row_reference(row, pending, c.logits.data<float>() + r * vocab, vocab, expected);
  if (actual.tokens[r] != expected.token) {
    EXPECT_LT(margin, kRounding) << "row " << r << " of vocabulary " << vocab << ": token "
                                 << actual.tokens[r] << ", expected " << expected.token;
    return true;
  }
  EXPECT_NEAR(actual.logprobs[r], expected.logprob, 1e-6 + 1e-6 * std::abs(expected.logprob));
  EXPECT_EQ(actual.ranks[r], expected.rank);
  for (int i = 0; i < actual.width; ++i) {
    const int64_t at = r * actual.width + i;
    EXPECT_EQ(actual.top_ids[at], ids[i]);
    EXPECT_NEAR(actual.top_logprobs[at], logprobs[i], 1e-6 + 1e-6 * std::abs(logprobs[i]));
  }
  return false;
}

TEST(Sample, AgreesWithTheReference) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const Context context = make_context(2);
    int calls = 0, rows_seen = 0, excused = 0;
    for (const int vocab : {1, 2, 7, 16, 31, 127, 128, 129, 1000, 32003, 151936}) {
      const int rows = on_emulator()   ? (vocab < 2000 ? 16 : 4)
                       : vocab < 2000  ? 200
                       : vocab < 50000 ? 40
                                       : 12;
      const Case c = random_case(rows, vocab, static_cast<uint32_t>(vocab));
      const Sampled actual = run_sample(context, c.logits, c.rows, c.previous);
      for (int64_t r = 0; r < rows; ++r) excused += expect_row(c, actual, r);
      rows_seen += rows;
      EXPECT_TRUE(kernel_ran(context, "sample", ++calls));
    }
    EXPECT_LE(excused, rows_seen / 500) << "too many tokens excused as rounding";
  }
}

// Spreads at which top_p reaches from a few tokens near the maximum to most of the vocabulary.
TEST(Sample, TopPAgreesWithTheReferenceNearAndFarFromTheMaximum) {
  const int rows = on_emulator() ? 12 : 120, vocab = 20011;
  std::mt19937 random(13);
  std::vector<float> values;
  Case c;
  for (int r = 0; r < rows; ++r) {
    std::normal_distribution<float> normal(0.0f, 0.3f + 6.0f / rows * static_cast<float>(r));
    for (int i = 0; i < vocab; ++i) values.push_back(normal(random));
    const float top_p = r % 3 == 0 ? 0.5f : r % 3 == 1 ? 0.9f : 0.999f;
    c.rows.push_back({.temperature = 1, .top_p = top_p, .seed = random(), .position = r});
  }
  c.logits = logits_array(values, rows);
  const Sampled actual = run_sample(make_context(2), c.logits, c.rows);
  int excused = 0;
  for (int r = 0; r < rows; ++r) excused += expect_row(c, actual, r);
  EXPECT_LE(excused, 1);
}

TEST(Sample, WeightsAreWithinTwoUlp) {
  std::vector<float> x;
  for (int i = 0; i < 200000; ++i) x.push_back(10.0f - 0.0004387f * static_cast<float>(i));
  x.insert(x.end(), {-90.0f, -INFINITY, NAN});
  const auto size = static_cast<int64_t>(x.size());
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    std::vector<float> weights(x.size());
    softmax_weights(x.data(), size, 10.0f, 0.99f, weights.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const float z = (x[i] - 10.0f) * 0.99f;
      const double expected = z >= -87.0f ? std::exp(static_cast<double>(z)) : 0.0;
      ASSERT_NEAR(weights[i], expected, std::ldexp(expected, -22)) << isa << " " << z;
    }
    std::vector<double> masses(num_sample_blocks(size));
    block_masses(x.data(), size, 10.0f, 0.99f, masses.data());
    for (size_t b = 0; b < masses.size(); ++b) {
      double sum = 0;
      for (size_t i = b * kSampleBlock; i < std::min<size_t>(x.size(), (b + 1) * kSampleBlock); ++i)
        sum += weights[i];
      ASSERT_NEAR(masses[b], sum, 1e-14 * sum) << isa;
    }
  }
}

TEST(Sample, ARowOfAMixedBatchEqualsTheRowAlone) {
  for (const int vocab : {129, 32003}) {
    const int rows = on_emulator() ? 6 : vocab < 1000 ? 100 : 20;
    const Case c = random_case(rows, vocab, 7);
    const Sampled batch = run_sample(make_context(1), c.logits, c.rows, c.previous);
    for (const int threads : {2, 3})
      EXPECT_EQ(run_sample(make_context(threads), c.logits, c.rows, c.previous), batch);
    for (int r = 0; r < rows; ++r) {
      const mx::array one = mx::contiguous(mx::slice(c.logits, {r, 0}, {r + 1, vocab}));
      const Sampled alone = run_sample(make_context(1), one, {c.rows[r]}, c.previous);
      EXPECT_EQ(alone.tokens[0], batch.tokens[r]);
      EXPECT_EQ(alone.logprobs[0], batch.logprobs[r]);
      EXPECT_EQ(alone.ranks[0], batch.ranks[r]);
      for (int i = 0; i < batch.width; ++i) {
        const bool asked = i < alone.width;
        EXPECT_EQ(asked ? alone.top_ids[i] : -1, batch.top_ids[r * batch.width + i]);
        EXPECT_EQ(asked ? alone.top_logprobs[i] : 0, batch.top_logprobs[r * batch.width + i]);
      }
    }
  }
}

TEST(Sample, EveryInstructionSetGivesTheSameBits) {
  const Case c = random_case(on_emulator() ? 4 : 60, 20011, 11);
  const Sampled best = run_sample(make_context(2), c.logits, c.rows, c.previous);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    EXPECT_EQ(run_sample(make_context(1), c.logits, c.rows, c.previous), best) << isa;
  }
}

TEST(Sample, TheReferenceIsTakenIfAskedFor) {
  if (on_gpu()) GTEST_SKIP() << "it runs on the host";
  const Case c = random_case(10, 300, 3);
  Context context = make_context(2);
  context.use_reference = true;
  const Sampled actual = run_sample(context, c.logits, c.rows, c.previous);
  EXPECT_EQ(actual.tokens, run_sample(make_context(1), c.logits, c.rows, c.previous).tokens);
  EXPECT_EQ(context.kernels->count("sample", "reference"), 1);
  EXPECT_TRUE(kernel_ran(context, "sample", 0));
}

// The random number is of (seed, position) alone: neither the row nor the batch is in it.
TEST(Sample, DrawsBySeedAndPosition) {
  const int rows = on_emulator() ? 12 : 64;
  const std::vector<float> flat(rows * 50000, 0.0f);
  std::vector<SampleRow> same(rows, {.temperature = 1.0f, .seed = 5, .position = 9});
  std::vector<SampleRow> seeds = same, positions = same;
  for (int r = 0; r < rows; ++r) {
    seeds[r].seed = static_cast<uint64_t>(r) << 32;
    positions[r].position = r;
  }
  const auto distinct = [&](const std::vector<SampleRow>& batch) {
    auto tokens = run_sample(make_context(2), logits_array(flat, rows), batch).tokens;
    std::sort(tokens.begin(), tokens.end());
    return std::unique(tokens.begin(), tokens.end()) - tokens.begin();
  };
  EXPECT_EQ(distinct(same), 1);
  EXPECT_GE(distinct(seeds), rows - 2);
  EXPECT_GE(distinct(positions), rows - 2);
}

TEST(Sample, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const mx::array logits = mx::zeros({2, 40}, mx::float32);
  const auto attempt = [&](const mx::array& x, std::vector<SampleRow> rows,
                           const std::optional<mx::array>& previous = std::nullopt) {
    sample(context, x, share(std::move(rows)), previous);
  };
  const std::vector<SampleRow> two(2);
  EXPECT_NO_THROW(attempt(logits, two));
  EXPECT_THROW(attempt(logits, std::vector<SampleRow>(3)), std::invalid_argument);
  EXPECT_THROW(attempt(mx::zeros({2, 40}, mx::float16), two), std::invalid_argument);
  EXPECT_THROW(attempt(mx::zeros({2, 4, 10}, mx::float32), two), std::invalid_argument);
  EXPECT_THROW(attempt(mx::zeros({2, 0}, mx::float32), two), std::invalid_argument);
  EXPECT_THROW(attempt(logits, two, mx::zeros({2}, mx::float32)), std::invalid_argument);
  EXPECT_THROW(attempt(logits, two, mx::zeros({2, 1}, mx::int32)), std::invalid_argument);
  EXPECT_THROW(sample(context, logits, nullptr, std::nullopt), std::invalid_argument);
  EXPECT_THROW(attempt(logits, {{.forced_token = 40}, {}}), std::invalid_argument);
  EXPECT_THROW(attempt(logits, {{.pending_row = 0}, {}}), std::invalid_argument);
  EXPECT_THROW(attempt(logits, {{.pending_row = 2}, {}}, mx::zeros({2}, mx::int32)),
               std::invalid_argument);
  const auto short_mask = std::make_shared<const std::vector<uint32_t>>(1, ~0u);
  EXPECT_THROW(attempt(logits, {{.mask = short_mask}, {}}), std::invalid_argument);
}

TEST(Sample, NoRowsIsNoWork) {
  const Sampled none = run_sample(make_context(2), mx::zeros({0, 40}, mx::float32), {});
  EXPECT_TRUE(none.tokens.empty());
  EXPECT_EQ(none.width, 1);
}

}  // namespace
}  // namespace quire::ops
