#include "ops/paged_attention/attention_test_util.h"

// The shapes that paged engines' own tests have found worth trying, and random ones: kernel,
// reference and, where it applies, MLX's attention over the gathered keys, each against the others;
// and windows of queries against single ones, bit for bit.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// As paged_attention_test.cpp derives them; codes as paged_attention_codes_test.cpp.
Bound bound(mx::Dtype dtype, KvStorage storage = KvStorage::kAuto) {
  const float u = dtype == mx::float32 ? 1e-5f : 2.0f * unit_roundoff(dtype);
  const float codes = storage == KvStorage::kAuto   ? 0.0f
                      : storage == KvStorage::kInt8 ? 2e-4f
                                                    : 2.0f * unit_roundoff(mx::bfloat16);
  return {.abs = u + codes, .rel = u + codes};
}

AttentionParams scaled(const Heads& heads) {
  return {.scale = 1.0f / std::sqrt(static_cast<float>(heads.dim))};
}

mx::array expect_matches(const Sequences& sequences, const std::vector<Segment>& segments,
                         const Paging& paging, const AttentionParams& params,
                         KvStorage storage = KvStorage::kAuto) {
  Context context = make_context(2);
  const Step step = sequences.step(segments, paging);
  const AttentionWithLse result = attend_with_lse(context, step, params);
  EXPECT_TRUE(
      kernel_ran(context, "paged_attention", 1, attention_kernel(sequences.dtype(), storage)));
  context.use_reference = true;
  const AttentionWithLse expected = attend_with_lse(context, step, params);
  EXPECT_TRUE(near(result.out, expected.out, bound(sequences.dtype(), storage)));
  EXPECT_TRUE(near(result.lse, expected.lse, {.abs = 2e-4f, .rel = 1e-5f}));
  return result.out;
}

// Decode rows over long contexts, whose chunks are split among threads.
TEST(PagedAttentionProof, LongContexts) {
  for (const KvStorage storage : {KvStorage::kAuto, KvStorage::kInt8, KvStorage::kFp8}) {
    const bool codes = storage != KvStorage::kAuto;  // slow to make
    const Heads heads{
        .heads = codes ? 4 : 16, .kv_heads = codes ? 2 : 8, .dim = 128, .value_dim = 128};
    for (const auto& lengths : {std::vector<int>{8192}, {100, 2048}, {700, 4096}, {1300}}) {
      const Sequences sequences(heads, mx::bfloat16, lengths, 7, storage);
      std::vector<Segment> segments;
      for (int s = 0; s < static_cast<int>(lengths.size()); ++s)
        segments.push_back({s, lengths[s] - 1, 1});
      for (const int64_t window :
           codes ? std::vector<int64_t>{-1, 700} : std::vector<int64_t>{-1, 512, 700, 1300}) {
        AttentionParams params = scaled(heads);
        params.window_left = window;
        const mx::array out = expect_matches(sequences, segments, {.order = 5}, params, storage);
        for (const float x : to_floats(out)) ASSERT_TRUE(std::isfinite(x));
      }
    }
  }
}

TEST(PagedAttentionProof, SinksOfAnySize) {
  const Heads heads{.heads = 8, .kv_heads = 2, .dim = 64, .value_dim = 64};
  const Sequences sequences(heads, mx::bfloat16, {300, 70});
  for (const float value : {0.0f, 2.0f, -5.0f}) {
    AttentionParams params = scaled(heads);
    params.sinks = mx::full({heads.heads}, value);
    expect_matches(sequences, {{0, 299, 1}, {1, 20, 50}}, {.order = 2}, params);
  }
  AttentionParams ramp = scaled(heads);
  ramp.sinks = mx::array({-1.5f, -1.0f, -0.5f, -0.1f, 0.1f, 0.5f, 1.0f, 1.5f});
  expect_matches(sequences, {{0, 299, 1}, {1, 20, 50}}, {.order = 2}, ramp);
}

// MLX's own attention over the keys of a scattered pool, gathered by hand: a window as a mask.
TEST(PagedAttentionProof, AgreesWithMlxOverGatheredKeys) {
  for (const mx::Dtype dtype : float_dtypes()) {
    for (const int dim : {64, 80, 128}) {
      const Heads heads{.heads = 8, .kv_heads = 2, .dim = dim, .value_dim = dim};
      const int length = 280;
      const Sequences sequences(heads, dtype, {length});
      const Step scattered = sequences.step({{0, 200, 80}}, {.block_size = 16, .order = 3});
      const Step whole = sequences.step({{0, 200, 80}}, {.block_size = length, .spare_blocks = 0});
      const mx::array query = mx::reshape(mx::arange(200, 280, mx::int32), {80, 1});
      const mx::array key = mx::reshape(mx::arange(0, length, mx::int32), {1, length});
      for (const int window : {-1, 50}) {
        mx::array mask = key <= query;
        if (window >= 0) mask = mx::logical_and(mask, key >= query - mx::array(window));
        const auto by_head = [](const mx::array& x) {
          return mx::astype(mx::transpose(x, {0, 2, 1, 3}), mx::float32);
        };
        AttentionParams params = scaled(heads);
        params.window_left = window;
        const mx::array expected = mx::fast::scaled_dot_product_attention(
            by_head(mx::expand_dims(scattered.q, 0)), by_head(whole.kv.k), by_head(whole.kv.v),
            params.scale, "", mask);
        EXPECT_TRUE(near(attend(make_context(2), scattered, params),
                         mx::squeeze(mx::transpose(expected, {0, 2, 1, 3}), 0), bound(dtype)))
            << dtype_name(dtype) << " D " << dim << " window " << window;
      }
    }
  }
}

// Random batches, head layouts, pagings and parameters.
TEST(PagedAttentionProof, RandomStepsMatchTheReference) {
  std::mt19937 generator(2024);
  const auto pick = [&](auto... values) {
    const int all[] = {static_cast<int>(values)...};
    return all[generator() % std::size(all)];
  };
  const auto isas = isas_to_test();
  for (int trial = 0; trial < 300; ++trial) {
    const ForcedIsa forced(isas[generator() % isas.size()]);
    const int kv_heads = pick(1, 2, 3), group = pick(1, 2, 4, 7);
    const Heads heads{.heads = kv_heads * group,
                      .kv_heads = kv_heads,
                      .dim = 8 * pick(1, 4, 5, 8, 12, 16, 23),
                      .value_dim = 8 * pick(1, 4, 7, 8, 16)};
    const auto storage = static_cast<KvStorage>(pick(0, 0, 1, 2));
    const mx::Dtype dtype = float_dtypes()[generator() % 3];
    std::vector<int> lengths;
    std::vector<Segment> segments;
    for (int s = pick(1, 2, 4); s > 0; --s) {
      const int length = 1 + static_cast<int>(generator() % pick(5, 60, 400));
      const int count = 1 + static_cast<int>(generator() % std::min(length, pick(1, 9, 80)));
      segments.push_back({static_cast<int>(lengths.size()), length - count, count});
      lengths.push_back(length);
    }
    AttentionParams params = scaled(heads);
    params.causal = pick(0, 1) != 0;
    params.window_left = pick(-1, 0, 20, 256);
    params.window_right = pick(-1, 0, 7);
    if (pick(0, 0, 1) != 0) params.softcap = 4.0f;
    if (pick(0, 1) != 0) params.sinks = slopes_of(heads.heads);
    if (pick(0, 1) != 0) params.alibi_slopes = slopes_of(heads.heads);
    SCOPED_TRACE("trial " + std::to_string(trial) + ", " + cpu_isa_name());
    const Sequences sequences(heads, dtype, lengths, static_cast<uint32_t>(trial), storage);
    expect_matches(sequences, segments,
                   {.block_size = pick(1, 3, 16, 32, 160),
                    .order = static_cast<uint32_t>(pick(0, 1, 2)),
                    .later_tokens = pick(0, 1) != 0},
                   params, storage);
  }
}

// ---- bits ----

// As when several drafted tokens are verified at once.
TEST(PagedAttentionProof, AWindowOfQueriesIsItsSingleRows) {
  for (const KvStorage storage : {KvStorage::kAuto, KvStorage::kInt8, KvStorage::kFp8}) {
    for (const int dim : {64, 128, 256}) {
      for (const mx::Dtype dtype : float_dtypes()) {
        const Heads heads{.heads = 4, .kv_heads = 2, .dim = dim, .value_dim = dim};
        const bool is_long = dim == 128 && dtype == mx::bfloat16 && !on_emulated_cpu();
        const int longest = is_long ? 8192 : 512;
        for (const int context : {0, 250, longest}) {
          Sequences sequences(heads, dtype, {context + 16}, 7, storage);
          if (storage == KvStorage::kAuto)
            sequences.values(0)[(context + 9) * 2 * dim + 3] =
                std::numeric_limits<float>::infinity();
          const AttentionParams params = scaled(heads);
          std::vector<mx::array> rows;
          for (int i = 0; i < 16; ++i)
            rows.push_back(attend(make_context(1), sequences.step({{0, context + i, 1}}), params));
          for (const int count : {2, 3, 5, 8, 16}) {
            const int block_size = count % 2 == 0 ? 8 : 32;
            const mx::array window = attend(
                make_context(2),
                sequences.step({{0, context, count}}, {.block_size = block_size, .order = 4}),
                params);
            const mx::array single = mx::concatenate({rows.begin(), rows.begin() + count}, 0);
            const auto a = to_floats(window), b = to_floats(single);
            for (size_t i = 0; i < a.size(); ++i)  // the payload of a NaN is not compared
              ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))
                  << count << " rows at " << context << ", D " << dim << dtype_name(dtype);
          }
        }
      }
    }
  }
}

// Block sizes of hybrid models too, in order and scattered: runs of blocks are read in place.
TEST(PagedAttentionProof, EveryBlockSizeGivesTheSameBits) {
  const Heads heads{.heads = 8, .kv_heads = 2, .dim = 64, .value_dim = 64};
  for (const KvStorage storage : {KvStorage::kAuto, KvStorage::kInt8, KvStorage::kFp8}) {
    const Sequences sequences(heads, mx::bfloat16, {1200, 600}, 7, storage);
    const std::vector<Segment> segments = {{0, 1199, 1}, {1, 100, 400}};
    const mx::array expected =
        attend(make_context(1), sequences.step(segments, {.block_size = 16}), scaled(heads));
    for (const int block_size : {4, 8, 24, 32, 144, 160, 528, 544})
      for (const uint32_t order : {0u, 6u})
        EXPECT_TRUE(
            same_bits(attend(make_context(2),
                             sequences.step(segments, {.block_size = block_size, .order = order}),
                             scaled(heads)),
                      expected))
            << block_size << " order " << order;
  }
}

// The longest context that is promised, and a pool whose last element needs more than 32 bits.
TEST(PagedAttentionProof, SlotsBeyond32BitsOfElements) {
  const int kv_heads = 8, dim = 128, block_size = 16, blocks = 140000;
  const PagedKv kv = make_paged_kv(blocks, block_size, kv_heads, dim, mx::bfloat16);
  ASSERT_GT(kv.k.size(), size_t{1} << 31);
  auto* k = const_cast<uint16_t*>(reinterpret_cast<const uint16_t*>(kv.k.data<char>()));
  auto* v = const_cast<uint16_t*>(reinterpret_cast<const uint16_t*>(kv.v.data<char>()));
  const auto layout_at = [&](int block) {
    auto layout = std::make_shared<BatchLayout>();
    layout->num_tokens = layout->num_sequences = 1;
    layout->block_size = block_size;
    layout->positions = {9};
    layout->cu_seqlens = {0, 1};
    layout->seq_lens = {10};
    layout->block_offsets = {0, 1};
    layout->blocks = {block};
    return layout;
  };
  const int64_t row = int64_t{kv_heads} * dim, last = int64_t{blocks - 1} * block_size;
  for (int64_t i = 0; i < 10 * row; ++i) {
    const auto bits = static_cast<uint16_t>(0x3F00 + (i * 37 + i / row * 11) % 256);
    k[i] = k[last * row + i] = bits;
    v[i] = v[last * row + i] = static_cast<uint16_t>(bits ^ 0x8000 * (i % 3 == 0));
  }
  const mx::array q = random_array({1, 16, dim}, mx::bfloat16, 5);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const auto at = [&](int block) {
      mx::array out = paged_attention(make_context(2), q, kv, layout_at(block), {.scale = 0.1f});
      mx::eval(out);
      return out;
    };
    EXPECT_TRUE(same_bits(at(0), at(blocks - 1))) << isa;
  }
}

TEST(PagedAttentionProof, TheLongestContext) {
  const Heads heads{.heads = 2, .kv_heads = 1, .dim = 32, .value_dim = 32};
  const int length = 131072;
  for (const KvStorage storage : {KvStorage::kAuto, KvStorage::kInt8}) {
    const Sequences sequences(heads, mx::bfloat16, {length}, 7, storage);
    expect_matches(sequences, {{0, length - 1, 1}}, {.block_size = 160, .order = 2}, scaled(heads),
                   storage);
  }
}

}  // namespace
}  // namespace quire::ops
