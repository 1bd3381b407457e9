#include "ops/paged_attention/attention_test_util.h"

// Pools of int8 and FP8 codes: the kernels against the reference over the same codes, the bits
// contract, and how far codes are from what they stand for.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr KvStorage kStorages[] = {KvStorage::kInt8, KvStorage::kFp8};
constexpr const char* kNames[] = {"auto", "int8", "fp8"};

AttentionParams scaled(const Heads& heads) {
  return {.scale = 1.0f / std::sqrt(static_cast<float>(heads.dim))};
}

std::vector<AttentionParams> variants(const Heads& heads) {
  AttentionParams plain = scaled(heads), window = plain, all = plain;
  window.window_left = 77;
  all.window_left = 300;
  all.softcap = 3.0f;
  all.sinks = slopes_of(heads.heads);
  all.alibi_slopes = slopes_of(heads.heads);
  return {plain, window, all};
}

// int8: a query is off by 2^-16 of its largest element (some 3 at D >= 64) in each product, a score
// by sqrt(D) times that and |k| / sqrt(D), some 1e-4, which is the relative error of p; p by 2^-17
// of the largest. FP8: p is rounded to bfloat16. Then the result's own rounding.
Bound bound(mx::Dtype dtype, KvStorage storage) {
  const float p = storage == KvStorage::kInt8 ? 2e-4f : 2.0f * unit_roundoff(mx::bfloat16);
  const float u = dtype == mx::float32 ? 0.0f : 2.0f * unit_roundoff(dtype);
  return {.abs = p + u, .rel = p + u};
}

void expect_matches(const Sequences& sequences, KvStorage storage,
                    const std::vector<Segment>& segments, const Paging& paging,
                    const AttentionParams& params) {
  Context context = make_context(2);
  const Step step = sequences.step(segments, paging);
  const AttentionWithLse result = attend_with_lse(context, step, params);
  EXPECT_TRUE(kernel_ran(context, "paged_attention", 1,
                         attention_kernel(sequences.dtype(), storage, sequences.heads().dim)));
  context.use_reference = true;
  const AttentionWithLse expected = attend_with_lse(context, step, params);
  EXPECT_TRUE(near(result.out, expected.out, bound(sequences.dtype(), storage)));
  EXPECT_TRUE(near(result.lse, expected.lse, {.abs = 2e-4f, .rel = 1e-5f}));
}

TEST(PagedAttentionCodes, MatchTheReferenceForEveryDtypeAndHeadDim) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const KvStorage storage : kStorages) {
      for (const mx::Dtype dtype : float_dtypes()) {
        for (const int dim : {8, 40, 64, 112, 128, 256, 512, 520, 576}) {
          if (on_emulator() && dtype == mx::float16 && dim != 64) continue;
          SCOPED_TRACE(isa + " " + kNames[static_cast<int>(storage)] + " " + dtype_name(dtype) +
                       " D " + std::to_string(dim));
          const Heads heads{
              .heads = 4, .kv_heads = 2, .dim = dim, .value_dim = dim == 64 ? 40 : dim};
          const Sequences sequences(heads, dtype, {37, 261, 70}, 7, storage);
          expect_matches(sequences, storage, {{0, 36, 1}, {1, 255, 6}, {2, 0, 70}}, {.order = 3},
                         scaled(heads));
        }
      }
    }
  }
}

TEST(PagedAttentionCodes, MatchTheReferenceForWindowsCapsSinksAndBiases) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    const Heads heads{.heads = 8, .kv_heads = 2, .dim = 32, .value_dim = 48};
    for (const KvStorage storage : kStorages) {
      const Sequences sequences(heads, mx::bfloat16, {300, 100, 9}, 7, storage);
      for (const AttentionParams& params : variants(heads))
        expect_matches(sequences, storage, {{1, 99, 1}, {2, 0, 9}, {0, 230, 40}},
                       {.block_size = 8, .order = 9}, params);
      AttentionParams both = scaled(heads);
      both.causal = false;
      both.window_right = 20;
      expect_matches(sequences, storage, {{1, 98, 1}, {2, 0, 9}, {0, 230, 40}},
                     {.block_size = 8, .whole_context = true, .shift = -10}, both);
    }
  }
}

// Every query, key, value and probability has the largest integer, of one sign or the other: sums
// of 32 bits just hold that of 512 elements. All keys are alike, so the result is the value; and a
// row's logarithm of its sum of exponents tells the score.
void expect_largest_sums(const Heads& heads) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const float key : {1.0f, -1.0f}) {
      for (const float value : {1.0f, -1.0f}) {
        if (on_emulator() && key == value) continue;  // slow
        Sequences sequences(heads, mx::bfloat16, {600}, 7, KvStorage::kInt8);
        std::fill(sequences.queries(0).begin(), sequences.queries(0).end(), 1.0f);
        std::fill(sequences.keys(0).begin(), sequences.keys(0).end(), key);
        std::fill(sequences.values(0).begin(), sequences.values(0).end(), value);
        for (const Segment& segment : {Segment{0, 599, 1}, Segment{0, 560, 40}}) {
          if (on_emulator() && segment.count > 1 && heads.dim == 576) continue;
          const Context context = make_context(1);
          const auto result =
              attend_with_lse(context, sequences.step({segment}), {.scale = 1.0f / 512});
          EXPECT_TRUE(kernel_ran(context, "paged_attention", 1,
                                 attention_kernel(mx::bfloat16, KvStorage::kInt8, heads.dim)));
          for (const float x : to_floats(result.out)) ASSERT_EQ(x, value) << isa << " key " << key;
          const float score = key * static_cast<float>(heads.dim) / 512;
          for (int i = 0; i < segment.count; ++i)
            ASSERT_NEAR(to_floats(result.lse)[i],
                        score + std::log(static_cast<float>(segment.first + i + 1)), 1e-4)
                << isa << " key " << key;
        }
      }
    }
  }
}
TEST(PagedAttentionCodes, LargestSumsDoNotOverflow) {
  for (const int dim : {512, 576})
    for (const int group : {2, 20})  // kernels for a few heads' and for many heads' decode
      expect_largest_sums({.heads = 2 * group, .kv_heads = 2, .dim = dim, .value_dim = 512});
}

// What codes cost: relative RMS of the result against the same keys and values in float32. Uniform
// rounding of normal data to 1/127 of its absmax (3 sigma at D = 64): 3 / 127 / sqrt(12) = 0.7 % of
// each element; FP8 rounds by up to 2^-4 of itself: 2.6 % RMS. Errors of values are averaged.
TEST(PagedAttentionCodes, AreCloseToWhatTheyStandFor) {
  const Heads heads{.heads = 8, .kv_heads = 2, .dim = 128, .value_dim = 128};
  for (const KvStorage storage : kStorages) {
    const Sequences exact(heads, mx::float32, {600}), coarse(heads, mx::float32, {600}, 7, storage);
    const auto x = to_floats(attend(make_context(2), exact.step({{0, 500, 100}}), scaled(heads)));
    const auto y = to_floats(attend(make_context(2), coarse.step({{0, 500, 100}}), scaled(heads)));
    double error = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error += (x[i] - y[i]) * (x[i] - y[i]);
      size += x[i] * x[i];
    }
    const double rms = std::sqrt(error / size);
    EXPECT_LT(rms, storage == KvStorage::kInt8 ? 0.02 : 0.06);
    EXPECT_GT(rms, 0.002);
  }
}

// ---- bits ----

TEST(PagedAttentionCodes, DecodeEqualsPrefillAtEveryPosition) {
  const Heads heads{.heads = 4, .kv_heads = 2, .dim = 40, .value_dim = 48};
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const KvStorage storage : kStorages) {
      for (const mx::Dtype dtype : {mx::float32, mx::bfloat16}) {
        const Sequences sequences(heads, dtype, {530}, 7, storage);
        for (const AttentionParams& params : variants(heads)) {
          const auto whole = solo(sequences, params);
          const Step all = sequences.step(sequences.whole());
          std::vector<mx::array> rows;
          const Context context = make_context(2);
          std::vector<mx::array> expected;
          for (int i = 0; i < 530; i += on_emulator() ? 23 : 1) {
            expected.push_back(rows_of(whole[0], i, i + 1));
            auto layout = std::make_shared<BatchLayout>(*all.layout);
            layout->num_tokens = 1;
            layout->positions = {i};
            layout->cu_seqlens = {0, 1};
            layout->seq_lens = {i + 1};
            rows.push_back(paged_attention(context, mx::contiguous(rows_of(all.q, i, i + 1)),
                                           all.kv, layout, params));
          }
          EXPECT_TRUE(same_bits(mx::concatenate(rows, 0), mx::concatenate(expected, 0)))
              << isa << kNames[static_cast<int>(storage)] << dtype_name(dtype);
        }
      }
    }
  }
}

TEST(PagedAttentionCodes, AnyBatchPagingThreadsAndPoison) {
  const std::vector<Segment> segments = {{0, 1099, 1},  {5, 256, 1}, {1, 39, 1},
                                         {2, 100, 200}, {3, 505, 8}, {4, 0, 90}};
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const KvStorage storage : kStorages) {
      for (const int group : {1, 3, 8, 12}) {
        if ((isa == "portable" || on_emulator()) && group != 3) continue;  // slow
        const Heads heads{.heads = 2 * group, .kv_heads = 2, .dim = 64, .value_dim = 32};
        const Sequences sequences(heads, mx::bfloat16, {1100, 40, 300, 513, 90, 257}, 7, storage);
        const AttentionParams params = variants(heads)[group % 3];
        const auto expected = solo(sequences, params);
        const Paging pagings[] = {{},
                                  {.block_size = 1, .order = 1},
                                  {.block_size = 144, .unwritten = kInf},
                                  {.block_size = 32, .order = 2, .later_tokens = true}};
        for (const Paging& paging : pagings)
          for (const int threads : {1, 2, 7}) {
            if (on_emulator() && threads > 1) continue;
            expect_solo_bits(
                expected, segments,
                attend(make_context(threads), sequences.step(segments, paging), params));
          }
      }
    }
  }
}

// The AMX and VNNI kernels and the fused multiply-add ones, and the latter of every vector length.
TEST(PagedAttentionCodes, InstructionSetsAgree) {
  if (on_metal()) GTEST_SKIP() << "they are the CPU's";
  const auto available = available_cpu_isas();
  for (const KvStorage storage : kStorages) {
    for (const int dim : {8, 40, 64, 128, 512, 576}) {
      const Heads heads{.heads = 6, .kv_heads = 2, .dim = dim, .value_dim = dim == 64 ? 96 : dim};
      const Sequences sequences(heads, mx::bfloat16, {300, 700, 20}, 7, storage);
      const Step step = sequences.step({{0, 299, 1}, {2, 19, 1}, {1, 250, 450}, {2, 0, 20}},
                                       {.block_size = 16, .order = 3, .later_tokens = true});
      for (const AttentionParams& params : variants(heads)) {
        std::optional<mx::array> first;
        for (const auto& isa : available) {
          if (isa == "portable") continue;
          const ForcedIsa forced(isa);
          const Context context = make_context(3);
          const mx::array out = attend(context, step, params);
          EXPECT_TRUE(kernel_ran(context, "paged_attention", 1,
                                 attention_kernel(mx::bfloat16, storage, dim)));
          if (first) {
            EXPECT_TRUE(same_bits(*first, out))
                << isa << " D " << dim << kNames[static_cast<int>(storage)];
          }
          first = first.value_or(out);
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::ops
