#include <map>

#include "ops/paged_attention/attention_test_util.h"

// The bits contract: what a query row gets depends on its sequence up to its position, and on
// nothing else.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// The variants of the arithmetic.
std::vector<AttentionParams> variants(const Heads& heads) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(heads.dim));
  std::vector<float> sinks;
  for (int h = 0; h < heads.heads; ++h) sinks.push_back(static_cast<float>(h) - 1.0f);
  const mx::array sink(sinks.begin(), {heads.heads});
  return {{.scale = scale},
          {.scale = scale, .window_left = 77},
          {.scale = scale, .window_left = 300, .softcap = 3.0f, .sinks = sink}};
}

TEST(PagedAttentionBits, DecodeEqualsPrefillAtEveryPosition) {
  // One head a group: the most different from a prompt's many rows.
  const Heads heads{.heads = 2, .kv_heads = 2, .dim = 40, .value_dim = 48};
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      const Sequences sequences(heads, dtype, {600});
      const Step all = sequences.step(sequences.whole());
      for (const AttentionParams& params : variants(heads)) {
        const auto whole = solo(sequences, params);
        std::vector<mx::array> rows;
        const Context context = make_context(2);
        for (int i = 0; i < 600; ++i) {
          // The pool also holds the later tokens: they must not matter.
          auto layout = std::make_shared<BatchLayout>(*all.layout);
          layout->num_tokens = 1;
          layout->positions = {i};
          layout->cu_seqlens = {0, 1};
          layout->seq_lens = {i + 1};
          rows.push_back(paged_attention(context, mx::contiguous(rows_of(all.q, i, i + 1)), all.kv,
                                         layout, params));
        }
        EXPECT_TRUE(same_bits(mx::concatenate(rows, 0), whole[0])) << isa << dtype_name(dtype);
        EXPECT_TRUE(kernel_ran(context, "paged_attention", 600, attention_kernel(dtype)));
      }
    }
  }
}

// In float32, because the last rounding to 16 bits would hide differences; and for groups of 1 to 5
// heads, because a chunk's rows are then taken 4, 2 and 1 at a time.
TEST(PagedAttentionBits, AnyChunkingOfPrefillIsTheSame) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const int group : {1, 2, 3, 5}) {
      const Heads heads{.heads = 2 * group, .kv_heads = 2, .dim = 64, .value_dim = 64};
      const Sequences sequences(heads, mx::float32, {700});
      const AttentionParams params = variants(heads)[group % 3];
      const auto whole = solo(sequences, params);
      for (uint32_t seed = 1; seed <= 3; ++seed) {
        std::mt19937 generator(seed);
        for (int first = 0; first < 700;) {
          const int count = std::min<int>(700 - first, 1 + generator() % (seed * 90));
          const std::vector<Segment> segments = {{0, first, count}};
          expect_solo_bits(whole, segments,
                           attend(make_context(2), sequences.step(segments), params));
          first += count;
        }
      }
    }
  }
}

// Many sequences at once, decode and prefill, under each of these conditions at a time.
class Mixed : public ::testing::Test {
 protected:
  void check(int threads, const Paging& paging) {
    for (const auto& isa : isas_to_test()) {
      const ForcedIsa forced(isa);
      for (const AttentionParams& params : variants(heads)) {
        auto& expected = solo_[isa + std::to_string(params.window_left)];
        if (expected.empty()) expected = solo(sequences, params);
        expect_solo_bits(expected, segments,
                         attend(make_context(threads), sequences.step(segments, paging), params));
      }
    }
  }
  const Heads heads{.heads = 6, .kv_heads = 2, .dim = 32, .value_dim = 32};
  const Sequences sequences{heads, mx::float32, {1100, 40, 300, 513, 90, 257}};
  const std::vector<Segment> segments = {{0, 1099, 1},  {5, 256, 1}, {1, 39, 1},
                                         {2, 100, 200}, {3, 505, 8}, {4, 0, 90}};

 private:
  inline static std::map<std::string, std::vector<mx::array>> solo_;
};

TEST_F(Mixed, WithAnyNumberOfThreads) {
  for (const int threads : {1, 2, 3, 7}) {
    SCOPED_TRACE(threads);
    check(threads, {});
  }
}

TEST_F(Mixed, WithAnyBlockSize) {
  for (const int block_size : {1, 8, 16, 160, 1024}) {
    SCOPED_TRACE(block_size);
    check(2, {.block_size = block_size});
  }
}

TEST_F(Mixed, WithBlocksInAnyOrder) {
  for (const uint32_t order : {1u, 2u, 3u}) check(2, {.block_size = 8, .order = order});
}

TEST_F(Mixed, WithAnythingInSlotsThatAreNotVisible) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float unwritten : {0.0f, kInf, -kInf, -1e30f})
    check(2, {.order = 4, .unwritten = unwritten});
}

// One long sequence on many threads: its chunks are attended apart and merged.
TEST(PagedAttentionBits, SplittingALongSequenceByChunksIsTheSame) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 32, .value_dim = 32};
  for (const int length : {100, 512, 2048, 4096 + 1300}) {
    const Sequences sequences(heads, mx::float32, {length});
    for (const AttentionParams& params : variants(heads)) {
      for (const int count : {1, 3}) {
        const Step step = sequences.step({{0, length - count, count}});
        const mx::array one = attend(make_context(1), step, params);
        for (const int threads : {2, 3, 16})
          EXPECT_TRUE(same_bits(one, attend(make_context(threads), step, params)))
              << length << " tokens, " << threads << " threads";
      }
    }
  }
}

// Some rows at the end of a context, which have fewer kv heads than there are threads.
TEST(PagedAttentionBits, SplittingAShortChunkAtDepthIsTheSame) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const KvStorage storage : {KvStorage::kAuto, KvStorage::kInt8, KvStorage::kFp8}) {
      for (const int dim : {40, 64}) {
        const Heads heads{.heads = 6, .kv_heads = 2, .dim = dim, .value_dim = dim == 64 ? 96 : 48};
        const Sequences sequences(heads, mx::bfloat16, {1300, 600}, 7, storage);
        for (const AttentionParams& params : variants(heads)) {
          const Step step = sequences.step({{0, 1280, 20}, {1, 590, 7}});
          const mx::array one = attend(make_context(1), step, params);
          for (const int threads : {5, 16})
            EXPECT_TRUE(same_bits(one, attend(make_context(threads), step, params)))
                << isa << ", storage " << static_cast<int>(storage) << ", dim " << dim << ", "
                << threads << " threads";
        }
      }
    }
  }
}

// What is not visible to a row may be infinite or NaN: tokens after it in the same chunk of prompt,
// and tokens left of its window.
TEST(PagedAttentionBits, InvisibleTokensNeverLeakIn) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 32, .value_dim = 32};
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const AttentionParams& params : variants(heads)) {
        const Sequences clean(heads, dtype, {400});
        const auto expected = solo(clean, params);
        for (const float poison : {std::numeric_limits<float>::infinity(), NAN}) {
          for (const int at : {0, 130, 255, 256, 301}) {
            Sequences dirty = clean;
            const int row = heads.kv_heads * heads.dim;
            std::fill_n(dirty.keys(0).begin() + at * row, row, poison);
            std::fill_n(dirty.values(0).begin() + at * row, row, poison);
            const mx::array out = attend(make_context(2), dirty.step(dirty.whole()), params);
            EXPECT_TRUE(same_bits(rows_of(out, 0, at), rows_of(expected[0], 0, at)));
            const int beyond = at + 1 + static_cast<int>(params.window_left);
            if (params.window_left >= 0 && beyond < 400) {
              EXPECT_TRUE(same_bits(rows_of(out, beyond, 400), rows_of(expected[0], beyond, 400)));
            }
            for (const float x : to_floats(rows_of(out, at, at + 1))) EXPECT_TRUE(std::isnan(x));
          }
        }
      }
    }
  }
}

TEST(PagedAttentionBits, VectorLengthsAgree) {
  if (!has_cpu_isa("avx2") || !has_cpu_isa("avx512")) GTEST_SKIP() << "needs AVX2 and AVX-512";
  for (const int dim : {8, 40, 64, 128}) {
    const Heads heads{.heads = 6, .kv_heads = 2, .dim = dim, .value_dim = dim};
    for (const mx::Dtype dtype : float_dtypes()) {
      const Sequences sequences(heads, dtype, {300});
      for (const AttentionParams& params : variants(heads)) {
        const Step step = sequences.step({{0, 0, 300}});
        std::vector<mx::array> out;
        for (const char* isa : {"avx512", "avx2"}) {
          const ForcedIsa forced(isa);
          out.push_back(attend(make_context(2), step, params));
        }
        EXPECT_TRUE(same_bits(out[0], out[1])) << "D " << dim << " " << dtype_name(dtype);
      }
    }
  }
}

// That the comparison can fail: a result does depend on the tokens that it sees.
TEST(PagedAttentionBits, AVisibleTokenDoesMatter) {
  const Heads heads{.heads = 1, .kv_heads = 1, .dim = 8, .value_dim = 8};
  const Sequences clean(heads, mx::float32, {300});
  Sequences other = clean;
  other.values(0)[5 * 8] += 1e-3f;
  const AttentionParams params{.scale = 0.3f};
  const mx::array a = attend(make_context(1), clean.step({{0, 0, 300}}), params);
  const mx::array b = attend(make_context(1), other.step({{0, 0, 300}}), params);
  EXPECT_TRUE(same_bits(rows_of(a, 0, 5), rows_of(b, 0, 5)));
  EXPECT_FALSE(same_bits(rows_of(a, 299, 300), rows_of(b, 299, 300)));
}

}  // namespace
}  // namespace quire::ops
