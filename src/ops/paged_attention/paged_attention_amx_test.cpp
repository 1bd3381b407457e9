#include "ops/paged_attention/attention_test_util.h"

// The AMX kernels against the fused multiply-add ones, which have the scalar model as their oracle:
// the same bits for whatever a step may hold.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

class PagedAttentionAmx : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const auto& isa : available_float_isas()) has_amx_ |= isa == "amx";
    if (!has_amx_) GTEST_SKIP() << "this machine has no AMX";
  }

  void expect_same(const Step& step, const AttentionParams& params, int threads = 2) {
    std::vector<mx::array> out, lse;
    for (const char* isa : {"amx", "avx512"}) {
      const ForcedIsa forced(isa);
      const Context context = make_context(isa == std::string("amx") ? threads : 2);
      const AttentionWithLse result = attend_with_lse(context, step, params);
      out.push_back(result.out);
      lse.push_back(result.lse);
      EXPECT_TRUE(kernel_ran(context, "paged_attention", 1, attention_kernel(step.q.dtype())));
    }
    EXPECT_TRUE(same_bits(out[0], out[1]));
    EXPECT_TRUE(same_bits(lse[0], lse[1]));
  }

  bool has_amx_ = false;
};

TEST_F(PagedAttentionAmx, EveryHeadDim) {
  for (const int dim : {8, 32, 40, 64, 80, 96, 112, 128, 192, 256, 512}) {
    for (const int value_dim : {dim, 48}) {
      SCOPED_TRACE(std::to_string(dim) + "/" + std::to_string(value_dim));
      const Heads heads{.heads = 4, .kv_heads = 2, .dim = dim, .value_dim = value_dim};
      expect_same(Sequences(heads, mx::bfloat16, kMixedLengths).step(kMixed, {.order = 3}),
                  plain(heads));
    }
  }
}

TEST_F(PagedAttentionAmx, EveryGroup) {
  for (const int group : {1, 2, 3, 4, 5, 6, 7, 8, 16, 33}) {
    SCOPED_TRACE(group);
    const Heads heads{.heads = 2 * group, .kv_heads = 2, .dim = 64, .value_dim = 64};
    expect_same(Sequences(heads, mx::bfloat16, kMixedLengths).step(kMixed), plain(heads));
  }
}

TEST_F(PagedAttentionAmx, EveryPaging) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 64, .value_dim = 64};
  const Sequences sequences(heads, mx::bfloat16, kMixedLengths);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const int block_size : {1, 3, 16, 32, 128, 144, 1024})
    for (const uint32_t order : {0u, 5u})
      for (const float unwritten : {static_cast<float>(NAN), kInf, -kInf})
        for (const int threads : {1, 2, 3})
          expect_same(sequences.step(kMixed, {.block_size = block_size,
                                              .order = order,
                                              .spare_blocks = 5,
                                              .unwritten = unwritten,
                                              .later_tokens = threads == 2}),
                      plain(heads), threads);
}

TEST_F(PagedAttentionAmx, WindowsCapsAndSinks) {
  const Heads heads{.heads = 6, .kv_heads = 2, .dim = 64, .value_dim = 96};
  const Sequences sequences(heads, mx::bfloat16, kMixedLengths);
  const Step step = sequences.step(kMixed, {.order = 2});
  for (const int64_t window : {-1, 0, 1, 15, 31, 32, 100, 255, 256, 300, 10000}) {
    for (const float softcap : {0.0f, 2.0f}) {
      for (const bool sinks : {false, true}) {
        SCOPED_TRACE(std::to_string(window) + " " + std::to_string(softcap));
        AttentionParams params = plain(heads);
        params.window_left = window;
        params.softcap = softcap;
        if (sinks) params.sinks = mx::array({0.0f, 2.0f, -5.0f, 1.5f, -90.0f, 8.0f});
        expect_same(step, params);
      }
    }
  }
}

TEST_F(PagedAttentionAmx, RightWindowsBiasesAndRowsThatSeeNothing) {
  const Heads heads{.heads = 6, .kv_heads = 2, .dim = 64, .value_dim = 96};
  const Sequences sequences(heads, mx::bfloat16, kMixedLengths);
  for (const int shift : {0, -90, -2000, 5}) {
    const Step step = sequences.step(kMixed, {.order = 2, .whole_context = true, .shift = shift});
    for (const int64_t left : {-1, 0, 40, 300}) {
      for (const int64_t right : {-1, 0, 1, 31, 100, 300}) {
        SCOPED_TRACE(std::to_string(shift) + ": " + std::to_string(left) + " " +
                     std::to_string(right));
        AttentionParams params = plain(heads);
        params.window_left = left;
        params.window_right = right;
        params.causal = false;
        expect_same(step, params);
        params.alibi_slopes = slopes_of(heads.heads);
        params.softcap = right == 31 ? 2.0f : 0.0f;
        expect_same(step, params);
      }
    }
  }
}

// Cuts at every kind of place: within and at the edges of blocks, chunks and tiles.
TEST_F(PagedAttentionAmx, AnyCutOfAPrompt) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 128, .value_dim = 128};
  const Sequences sequences(heads, mx::bfloat16, {1100});
  const mx::array whole = attend(make_context(1), sequences.step({{0, 0, 1100}}), plain(heads));
  for (const std::vector<int>& cuts : {std::vector<int>{0, 256, 512, 1100},
                                       {0, 1, 33, 255, 257, 700, 1100},
                                       {0, 511, 527, 1100}}) {
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const Step step = sequences.step({{0, cuts[i], cuts[i + 1] - cuts[i]}}, {.order = 8});
      EXPECT_TRUE(same_bits(attend(make_context(3), step, plain(heads)),
                            rows_of(whole, cuts[i], cuts[i + 1])));
      expect_same(step, plain(heads));
    }
  }
}

// One long sequence on many threads: its chunks are attended apart and merged.
TEST_F(PagedAttentionAmx, ALongSequenceSplitByChunks) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 64, .value_dim = 80};
  const Sequences sequences(heads, mx::bfloat16, {3000});
  AttentionParams capped = plain(heads);
  capped.window_left = 1500;
  capped.softcap = 2.0f;
  capped.sinks = mx::array({0.0f, 2.0f, -5.0f, 1.5f});
  for (const AttentionParams& params : {plain(heads), capped})
    for (const int threads : {1, 2, 3, 16})
      expect_same(sequences.step({{0, 2999, 1}}, {.order = 4}), params, threads);
}

// Few tokens at the end of long contexts, between sequences that decode: items of several kv heads
// and of some chunks each, which ask for one another's keys and values.
TEST_F(PagedAttentionAmx, ShortChunksAtDepth) {
  for (const KvStorage storage : {KvStorage::kAuto, KvStorage::kInt8, KvStorage::kFp8}) {
    for (const int group : {2, 7}) {
      const Heads heads{.heads = 6 * group, .kv_heads = 6, .dim = 40, .value_dim = 48};
      const Sequences sequences(heads, mx::bfloat16, {1500, 700, 900, 1024}, 7, storage);
      AttentionParams capped = plain(heads);
      capped.window_left = 800;
      capped.softcap = 2.0f;
      for (const AttentionParams& params : {plain(heads), capped})
        for (const auto& [count, threads] : {std::pair(2, 16), {5, 2}, {18, 16}})
          expect_same(
              sequences.step({{0, 1500 - count, count}, {1, 699, 1}, {2, 880, count}, {3, 1023, 1}},
                             {.order = 3}),
              params, threads);
    }
  }
}

// Infinite or NaN values that some rows of a tile see and others do not; scores far apart.
TEST_F(PagedAttentionAmx, ValuesThatAreNotFinite) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 64, .value_dim = 64};
  for (const float poison : {std::numeric_limits<float>::infinity(), static_cast<float>(NAN)}) {
    for (const int at : {0, 130, 255, 256, 399}) {
      Sequences sequences(heads, mx::bfloat16, {400});
      sequences.values(0)[at * 128 + 5] = poison;
      for (const int64_t window : {-1, 77}) {
        AttentionParams params = plain(heads);
        params.window_left = window;
        for (const Segment segment : {Segment{0, 0, 400}, {0, std::clamp(at - 2, 0, 395), 5}}) {
          const Step step = sequences.step({segment});
          std::vector<std::vector<float>> out;
          for (const char* isa : {"amx", "avx512"}) {
            const ForcedIsa forced(isa);
            out.push_back(to_floats(attend(make_context(2), step, params)));
          }
          // The payload of a NaN is not compared.
          for (size_t i = 0; i < out[0].size(); ++i)
            ASSERT_TRUE(out[0][i] == out[1][i] || (std::isnan(out[0][i]) && std::isnan(out[1][i])))
                << segment.count << " rows, " << i << ": " << out[0][i] << " and " << out[1][i];
        }
      }
    }
  }
}

// Totals too large, too small or of a sign too few for the quick way to divide by their sums.
TEST_F(PagedAttentionAmx, ValuesOfEveryMagnitude) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 64, .value_dim = 64};
  Sequences sequences(heads, mx::bfloat16, {600});
  std::vector<float>& values = sequences.values(0);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i % 7 == 0 ? -0.0f : std::ldexp(values[i], static_cast<int>(i % 64) * 4 - 126);
  AttentionParams far = plain(heads);
  far.sinks = mx::array({0.0f, 60.0f, -60.0f, 30.0f});
  for (const AttentionParams& params : {plain(heads), far})
    expect_same(sequences.step({{0, 0, 600}}), params);
}

TEST_F(PagedAttentionAmx, LargeAndSmallScores) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 64, .value_dim = 64};
  const Sequences sequences(heads, mx::bfloat16, {600});
  for (const float scale : {0.0f, 1e-6f, 1.0f, 300.0f})
    expect_same(sequences.step({{0, 0, 600}}), {.scale = scale});
}

// Other dtypes are not for the matrix units.
TEST_F(PagedAttentionAmx, OtherDtypesGoToTheVectorKernel) {
  const Heads heads{};
  for (const mx::Dtype dtype : {mx::float32, mx::float16}) {
    const Context context = make_context(2);
    attend(context, Sequences(heads, dtype, {70}).step({{0, 0, 70}}), plain(heads));
    EXPECT_EQ(context.kernels->count("paged_attention", "cpu_amx"), 0);
    EXPECT_TRUE(kernel_ran(context, "paged_attention", 1));
  }
}

}  // namespace
}  // namespace quire::ops
