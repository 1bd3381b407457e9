#include "ops/paged_attention/attention_lists.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "ops/paged_attention/attention_scratch.h"

namespace quire::ops {
namespace {

struct Sequence {
  int64_t rows, context;
};

BatchLayout layout_of(const std::vector<Sequence>& sequences) {
  BatchLayout layout;
  layout.block_size = 16;
  layout.num_sequences = static_cast<int64_t>(sequences.size());
  layout.cu_seqlens = {0};
  layout.block_offsets = {0};
  for (const auto& [rows, context] : sequences) {
    for (int64_t i = 0; i < rows; ++i)
      layout.positions.push_back(static_cast<int32_t>(context - rows + i));
    layout.num_tokens += rows;
    layout.cu_seqlens.push_back(static_cast<int32_t>(layout.num_tokens));
    layout.seq_lens.push_back(static_cast<int32_t>(context));
    layout.block_offsets.push_back(layout.block_offsets.back() + (context + 15) / 16);
  }
  return layout;
}

AttentionKernelParams params_of(int64_t heads, int64_t kv_heads, int64_t dim, KvType kv_type) {
  return {.q_type = FloatType::kBf16,
          .kv_type = kv_type,
          .heads = heads,
          .kv_heads = kv_heads,
          .key_dim = dim,
          .value_dim = std::min<int64_t>(dim, 512),
          .block_size = 16};
}

// As a step asks for them: paged_attention.cpp.
AttentionCudaLimits limits_of(const AttentionKernelParams& p, size_t block_memory) {
  return {.max_partial_rows =
              kAttentionCudaScratch / static_cast<int64_t>(attention_cuda_partials_bytes(p, 1)),
          .block_memory = block_memory};
}

std::vector<AttentionKernelParams> shapes() {
  std::vector<AttentionKernelParams> all;
  const std::pair<int64_t, int64_t> heads[] = {{1, 1},  {8, 8},  {8, 2},   {16, 8},
                                               {32, 8}, {40, 2}, {64, 16}, {128, 1}};
  for (const auto& [of_queries, of_keys] : heads)
    for (const int64_t dim : {64, 128, 256, 576})
      for (const KvType type : {KvType::kBf16, KvType::kInt8})
        all.push_back(params_of(of_queries, of_keys, dim, type));
  return all;
}

std::vector<std::vector<Sequence>> steps() {
  std::vector<std::vector<Sequence>> all = {{{1, 1}},
                                            {{1, 100'000}},
                                            {{1, 300}, {1, 20'000}, {1, 5}},
                                            {{2048, 2048}},
                                            {{33, 33}, {65, 8000}, {129, 4096}},
                                            {{1, 4000}, {1, 9000}, {700, 700}}};
  all.push_back(std::vector<Sequence>(64, {1, 1024}));
  all.push_back(std::vector<Sequence>(256, {1, 3000}));
  all.push_back(std::vector<Sequence>(61, {17, 40}));
  std::mt19937 random(3);
  for (int i = 0; i < 12; ++i) {
    std::vector<Sequence> step(1 + random() % 40);
    for (Sequence& s : step) {
      s.rows = random() % 2 ? 1 : 1 + static_cast<int64_t>(random() % 300);
      s.context = s.rows + static_cast<int64_t>(random() % 9000);
    }
    all.push_back(step);
  }
  return all;
}

void expect_no_more(const AttentionCudaSizes& sizes, const AttentionCudaSizes& most,
                    const std::string& what) {
  EXPECT_LE(sizes.few, most.few) << what;
  EXPECT_LE(sizes.many, most.many) << what;
  EXPECT_LE(sizes.merges, most.merges) << what;
}

// Of any step on any GPU: what is asked for is no more than what is counted.
TEST(AttentionLists, TakeNoMoreThanIsCounted) {
  for (const AttentionKernelParams& p : shapes())
    for (const size_t memory : {size_t{98} << 10, size_t{162} << 10, kHopperBlockMemory})
      for (const std::vector<Sequence>& step : steps()) {
        const BatchLayout layout = layout_of(step);
        const AttentionCudaLimits limits = limits_of(p, memory);
        const AttentionCudaPlan plan = plan_attention_cuda(p, layout, limits);
        const std::string what = std::to_string(p.heads) + "/" + std::to_string(p.kv_heads) +
                                 " heads of " + std::to_string(p.key_dim) + ", " +
                                 std::to_string(layout.num_sequences) + " sequences, " +
                                 std::to_string(layout.num_tokens) + " tokens";
        int64_t longest = 0;
        for (const Sequence& s : step) longest = std::max(longest, s.context);
        expect_no_more(sizes_of(plan), most_attention_items(p, layout, limits), what);
        expect_no_more(sizes_of(plan), most_attention_items(p, layout, limits, longest), what);
        expect_no_more(sizes_of(plan),
                       most_attention_items(p, layout.num_tokens, layout.num_sequences, limits),
                       what);
        const AttentionKind kind = {.heads = p.heads, .kv_heads = p.kv_heads};
        EXPECT_LE(plan.partial_rows, limits.max_partial_rows) << what;
        EXPECT_LE(static_cast<int64_t>(attention_list_places(p, sizes_of(plan)).bytes +
                                       attention_cuda_partials_bytes(p, limits.max_partial_rows)),
                  most_attention_bytes({&kind, 1}, layout.num_tokens, layout.num_sequences))
            << what;
      }
}

// There are steps that need it: lists of prompts exactly, of single tokens but for the rests.
TEST(AttentionLists, AreNotCountedForMoreThanSomeStepTakes) {
  const AttentionKernelParams p = params_of(1, 1, 128, KvType::kBf16);
  const AttentionCudaLimits limits = limits_of(p, kHopperBlockMemory);
  const BatchLayout prompts = layout_of(std::vector<Sequence>(128, {128 + 1, 1000}));
  EXPECT_EQ(plan_attention_cuda(p, prompts, limits).many.size(), 128 * 2);
  EXPECT_EQ(most_attention_items(p, prompts.num_tokens, 128, limits).many, 128 * 2);
  // 4 contexts of 131 chunks, 2 an item: 66 items each, of which 264 blocks have one each.
  const BatchLayout tokens = layout_of(std::vector<Sequence>(4, {1, 131 * kAttentionChunk}));
  const AttentionCudaSizes sizes = sizes_of(plan_attention_cuda(p, tokens, limits)),
                           most = most_attention_items(p, 4, 4, limits);
  EXPECT_EQ(sizes.few, 4 * 66);
  EXPECT_LE(most.few, sizes.few + 5);
  EXPECT_EQ(sizes.merges, 4);
  EXPECT_EQ(most.merges, 4);
}

// Each list begins where its elements may, behind the one before.
TEST(AttentionLists, LieOneBehindTheOther) {
  const AttentionKernelParams p = params_of(16, 8, 128, KvType::kBf16);
  const AttentionListPlaces places = attention_list_places(p, {.few = 3, .many = 5, .merges = 2});
  constexpr size_t kItem = sizeof(AttentionCudaItem);
  EXPECT_EQ(places.few, 0);
  EXPECT_GE(places.many, 3 * kItem);
  EXPECT_GE(places.merges, places.many + 5 * kItem);
  EXPECT_GE(places.counts, places.merges + 2 * kItem);
  EXPECT_GE(places.counters, places.counts + 8);
  EXPECT_EQ(places.bytes, places.counters + 4 * attention_cuda_counters(p, 2));
  for (const size_t at : {places.many, places.merges, places.counts, places.counters})
    EXPECT_EQ(at % 16, 0);
}

TEST(AttentionLists, OfEachKindAreCounted) {
  const AttentionKind one = {.heads = 32, .kv_heads = 8}, other = {.heads = 8, .kv_heads = 1};
  const auto lists = [](const std::vector<AttentionKind>& kinds) {
    return most_attention_bytes(kinds, 8192, 256) - kAttentionCudaScratch;
  };
  EXPECT_EQ(lists({}), 0);
  EXPECT_GT(lists({one}), 0);
  EXPECT_EQ(lists({one, other}), lists({one}) + lists({other}));
}

}  // namespace
}  // namespace quire::ops
