#include "ops/paged_attention/attention_test_util.h"

// The kernels for vdpbf16ps, whose bits attention_model_test.cpp states one operation at a time:
// the same for a row wherever it stands, in decode and in a prompt, which are different kernels;
// and how far they are from exact numbers.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr const char* kIsa = "avx512_bf16";

class PagedAttentionAvx512Bf16 : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto isas = available_float_isas();
    if (std::find(isas.begin(), isas.end(), kIsa) == isas.end())
      GTEST_SKIP() << "this machine has no AVX-512 with BF16";
    force_cpu_isa(kIsa);
  }
  void TearDown() override { force_cpu_isa(""); }

  static AttentionWithLse run(const Step& step, const AttentionParams& params, int threads) {
    const Context context = make_context(threads);
    AttentionWithLse result = attend_with_lse(context, step, params);
    EXPECT_TRUE(kernel_ran(context, "paged_attention", 1, "cpu_avx512_bf16"));
    return result;
  }

  // Each row of the step has the bits that it has when its sequence is one prompt; sums of
  // exponents in float32, of which no rounding hides anything.
  static void expect_solo(const Sequences& sequences, const std::vector<Segment>& segments,
                          const Paging& paging, const AttentionParams& params, int threads = 2) {
    const AttentionWithLse result = run(sequences.step(segments, paging), params, threads);
    const std::vector<Segment> whole = sequences.whole();
    std::vector<AttentionWithLse> alone;
    alone.reserve(whole.size());
    for (const Segment& s : whole) alone.push_back(run(sequences.step({s}), params, 1));
    int row = 0;
    for (const Segment& s : segments) {
      const AttentionWithLse& expected = alone[s.sequence];
      EXPECT_TRUE(same_bits(rows_of(result.out, row, row + s.count),
                            rows_of(expected.out, s.first, s.first + s.count)))
          << "sequence " << s.sequence << " positions " << s.first << " + " << s.count;
      const int heads = result.lse.shape(0);
      EXPECT_TRUE(same_bits(
          mx::contiguous(mx::slice(result.lse, {0, row}, {heads, row + s.count})),
          mx::contiguous(mx::slice(expected.lse, {0, s.first}, {heads, s.first + s.count}))));
      row += s.count;
    }
  }
};

TEST_F(PagedAttentionAvx512Bf16, EveryHeadDim) {
  for (const int dim : {8, 32, 40, 64, 80, 96, 112, 128, 192, 256, 512}) {
    for (const int value_dim : {dim, 48}) {
      SCOPED_TRACE(std::to_string(dim) + "/" + std::to_string(value_dim));
      const Heads heads{.heads = 4, .kv_heads = 2, .dim = dim, .value_dim = value_dim};
      expect_solo(Sequences(heads, mx::bfloat16, kMixedLengths), kMixed, {.order = 3},
                  plain(heads));
    }
  }
}

TEST_F(PagedAttentionAvx512Bf16, EveryGroup) {
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33}) {
    SCOPED_TRACE(group);
    const Heads heads{.heads = 2 * group, .kv_heads = 2, .dim = 64, .value_dim = 96};
    expect_solo(Sequences(heads, mx::bfloat16, kMixedLengths), kMixed, {}, plain(heads), 3);
  }
}

// Of a head, so that tiles have every height.
TEST_F(PagedAttentionAvx512Bf16, EveryNumberOfRows) {
  const Heads heads{.heads = 2, .kv_heads = 2, .dim = 64, .value_dim = 64};
  const Sequences sequences(heads, mx::bfloat16, {400});
  std::vector<Segment> segments;
  for (int count = 1; count <= 26; ++count) segments.push_back({0, 240 + count, count});
  expect_solo(sequences, segments, {}, plain(heads));
}

TEST_F(PagedAttentionAvx512Bf16, EveryPaging) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 64, .value_dim = 64};
  const Sequences sequences(heads, mx::bfloat16, kMixedLengths);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const int block_size : {1, 3, 16, 32, 128, 144, 1024})
    for (const uint32_t order : {0u, 5u})
      for (const float unwritten : {static_cast<float>(NAN), kInf, -kInf})
        expect_solo(sequences, kMixed,
                    {.block_size = block_size,
                     .order = order,
                     .spare_blocks = 5,
                     .unwritten = unwritten,
                     .later_tokens = order == 0},
                    plain(heads), 3);
}

TEST_F(PagedAttentionAvx512Bf16, WindowsCapsSinksAndBiases) {
  const Heads heads{.heads = 6, .kv_heads = 2, .dim = 64, .value_dim = 96};
  const Sequences sequences(heads, mx::bfloat16, kMixedLengths);
  for (const int64_t window : {-1, 0, 1, 15, 31, 32, 100, 255, 256, 300, 10000}) {
    for (const bool more : {false, true}) {
      SCOPED_TRACE(std::to_string(window) + (more ? " and more" : ""));
      AttentionParams params = plain(heads);
      params.window_left = window;
      if (more) {
        params.softcap = 2.0f;
        params.sinks = mx::array({0.0f, 2.0f, -5.0f, 1.5f, -90.0f, 8.0f});
        params.alibi_slopes = slopes_of(heads.heads);
      }
      expect_solo(sequences, kMixed, {.order = 2}, params);
    }
  }
}

// Rows before the first key and windows to the right: rows that see nothing of a chunk, or nothing
// at all, beside others that do.
TEST_F(PagedAttentionAvx512Bf16, RightWindowsAndRowsThatSeeNothing) {
  const Heads heads{.heads = 6, .kv_heads = 2, .dim = 64, .value_dim = 96};
  const Sequences sequences(heads, mx::bfloat16, kMixedLengths);
  for (const int shift : {0, -90, -2000, 5}) {
    const Paging paging{.order = 2, .whole_context = true, .shift = shift};
    const Step step = sequences.step(kMixed, paging);
    for (const int64_t left : {-1, 40}) {
      for (const int64_t right : {-1, 0, 31, 300}) {
        SCOPED_TRACE(std::to_string(shift) + ": " + std::to_string(left) + " " +
                     std::to_string(right));
        AttentionParams params = plain(heads);
        params.window_left = left;
        params.window_right = right;
        params.causal = false;
        const AttentionWithLse result = run(step, params, 3);
        Context reference = make_context(1);
        reference.use_reference = true;
        const AttentionWithLse expected = attend_with_lse(reference, step, params);
        const float u = 2.0f * unit_roundoff(mx::bfloat16);
        EXPECT_TRUE(near(result.out, expected.out, {.abs = u, .rel = u}));
        EXPECT_TRUE(near(result.lse, expected.lse, {.abs = 1e-5f, .rel = 1e-5f}));
        // A row at a time.
        int row = 0;
        for (const Segment& s : kMixed) {
          const Segment last{s.sequence, s.first + s.count - 1, 1};
          row += s.count;
          EXPECT_TRUE(same_bits(run(sequences.step({last}, paging), params, 1).out,
                                rows_of(result.out, row - 1, row)));
        }
      }
    }
  }
}

// One long sequence on many threads: its chunks are attended apart and merged.
TEST_F(PagedAttentionAvx512Bf16, ALongSequenceSplitByChunks) {
  for (const int group : {2, 4, 8}) {
    const Heads heads{.heads = 2 * group, .kv_heads = 2, .dim = 64, .value_dim = 80};
    const Sequences sequences(heads, mx::bfloat16, {3000});
    AttentionParams capped = plain(heads);
    capped.window_left = 1500;
    capped.softcap = 2.0f;
    for (const AttentionParams& params : {plain(heads), capped})
      for (const int count : {1, 3, 13})
        for (const int threads : {1, 2, 16})
          expect_solo(sequences, {{0, 3000 - count, count}}, {.order = 4}, params, threads);
  }
}

// Infinite or NaN values that some rows of a tile see and others do not.
TEST_F(PagedAttentionAvx512Bf16, ValuesThatAreNotFinite) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 64, .value_dim = 64};
  for (const float poison : {std::numeric_limits<float>::infinity(), static_cast<float>(NAN)}) {
    for (const int at : {0, 130, 255, 256, 399}) {
      const Sequences clean(heads, mx::bfloat16, {400});
      Sequences dirty = clean;
      dirty.values(0)[at * 128 + 5] = poison;
      for (const int64_t window : {-1, 77}) {
        AttentionParams params = plain(heads);
        params.window_left = window;
        const auto expected = to_floats(run(clean.step({{0, 0, 400}}), params, 2).out);
        const auto out = to_floats(run(dirty.step({{0, 0, 400}}), params, 2).out);
        for (int row = 0; row < 400; ++row) {
          const bool sees = row >= at && (window < 0 || row - at <= window);
          for (int d = 0; d < 4 * 64; ++d) {
            // Column 5 of the first kv head's two query heads.
            const bool bad = sees && (d == 5 || d == 64 + 5);
            const int i = row * 4 * 64 + d;
            ASSERT_TRUE(bad ? !std::isfinite(out[i]) : out[i] == expected[i])
                << "row " << row << " column " << d << ": " << out[i];
          }
        }
        // The same in a chunk of few rows, which has a kernel of its own.
        const int first = std::clamp(at - 2, 0, 395);
        const auto few = to_floats(run(dirty.step({{0, first, 5}}), params, 2).out);
        for (size_t i = 0; i < few.size(); ++i) {
          const float whole = out[first * 4 * 64 + i];
          ASSERT_TRUE(few[i] == whole || (std::isnan(few[i]) && std::isnan(whole)))
              << "of few rows " << i << ": " << few[i] << " and " << whole;
        }
      }
    }
  }
}

TEST_F(PagedAttentionAvx512Bf16, ValuesOfEveryMagnitude) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 64, .value_dim = 64};
  Sequences sequences(heads, mx::bfloat16, {600});
  std::vector<float>& values = sequences.values(0);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i % 7 == 0 ? -0.0f : std::ldexp(values[i], static_cast<int>(i % 64) * 4 - 126);
  AttentionParams far = plain(heads);
  far.sinks = mx::array({0.0f, 60.0f, -60.0f, 30.0f});
  for (const AttentionParams& params : {plain(heads), far})
    for (const int count : {1, 2, 9, 200})
      expect_solo(sequences, {{0, 600 - count, count}, {0, 300 - count, count}},
                  {.later_tokens = true}, params);
}

// Against float64 over the same bfloat16 inputs. The largest error is that of rounding p: a row's
// errors are independent and within 2^-9 of each weight, so that the mean is off by less than 2^-9
// of its values' root mean square; the result's own rounding is as much of it again. 3e-3 in all,
// root mean square over all results, relative to theirs.
TEST_F(PagedAttentionAvx512Bf16, IsAsExactAsItsRoundingsAllow) {
  const Heads heads{.heads = 8, .kv_heads = 2, .dim = 128, .value_dim = 128};
  const int length = 1500, group = 4;
  const Sequences sequences(heads, mx::bfloat16, {length});
  const Step step = sequences.step({{0, 0, length}}, {.block_size = length, .spare_blocks = 0});
  const auto q = to_floats(step.q), k = to_floats(step.kv.k), v = to_floats(step.kv.v);
  const auto out = to_floats(run(step, plain(heads), 2).out);
  double error = 0, size = 0;
  for (const int position : {0, 1, 40, 255, 256, 777, 1499}) {
    for (int head = 0; head < heads.heads; ++head) {
      const int64_t row = int64_t{position} * heads.heads + head, kv_head = head / group;
      std::vector<double> weights, exact(128);
      double sum = 0;
      for (int64_t t = 0; t <= position; ++t) {
        double score = 0;
        for (int d = 0; d < 128; ++d)
          score += double{q[row * 128 + d]} * k[(t * 2 + kv_head) * 128 + d];
        weights.push_back(std::exp(score / std::sqrt(128.0)));
        sum += weights.back();
        for (int d = 0; d < 128; ++d) exact[d] += weights.back() * v[(t * 2 + kv_head) * 128 + d];
      }
      for (int d = 0; d < 128; ++d) {
        const double e = exact[d] / sum;
        error += (out[row * 128 + d] - e) * (out[row * 128 + d] - e);
        size += e * e;
      }
    }
  }
  EXPECT_LT(std::sqrt(error / size), 3e-3);
}

// Portable bits, other dtypes and codes are for the vector kernel, and the log says so.
TEST_F(PagedAttentionAvx512Bf16, WhatIsNotForThisUnitGoesToOthers) {
  const Heads heads{};
  const auto ran_on = [&](const char* kernel, const Sequences& sequences) {
    const Context context = make_context(2);
    const mx::array out = attend(context, sequences.step({{0, 0, 70}}), plain(heads));
    EXPECT_EQ(context.kernels->count("paged_attention", "cpu_avx512_bf16"), 0);
    EXPECT_TRUE(kernel_ran(context, "paged_attention", 1, kernel));
    return out;
  };
  const auto codes = [&](mx::Dtype dtype, KvStorage storage) {
    return Sequences(heads, dtype, {70}, 7, storage);
  };
  for (const mx::Dtype dtype : {mx::float32, mx::float16}) {
    ran_on("cpu_avx512", Sequences(heads, dtype, {70}));
    ran_on("cpu_avx512", codes(dtype, KvStorage::kInt8));
  }
  ran_on("cpu_avx512", codes(mx::bfloat16, KvStorage::kFp8));
  ran_on("cpu_avx512_vnni", codes(mx::bfloat16, KvStorage::kInt8));
  const Sequences sequences(heads, mx::bfloat16, {70});
  set_portable_bits(true);
  const mx::array portable = ran_on("cpu_avx512", sequences);
  set_portable_bits(false);
  force_cpu_isa("avx512");
  EXPECT_TRUE(same_bits(portable, ran_on("cpu_avx512", sequences)));
}

}  // namespace
}  // namespace quire::ops
