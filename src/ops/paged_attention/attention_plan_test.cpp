#include "ops/paged_attention/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace quire::ops {
namespace {

constexpr int kThreads = 2;

AttentionKernelParams make_params(AttentionUnit unit) {
  return {.q_type = FloatType::kBf16,
          .kv_type = KvType::kBf16,
          .unit = unit,
          .heads = 16,
          .kv_heads = 8,
          .key_dim = 128,
          .value_dim = 128,
          .block_size = 16};
}

// One query of each sequence, at the end of its context.
BatchLayout decode_layout(const std::vector<int32_t>& contexts) {
  BatchLayout layout;
  layout.block_size = 16;
  layout.num_tokens = layout.num_sequences = static_cast<int64_t>(contexts.size());
  layout.cu_seqlens = {0};
  layout.block_offsets = {0};
  for (const int32_t context : contexts) {
    layout.positions.push_back(context - 1);
    layout.seq_lens.push_back(context);
    layout.cu_seqlens.push_back(layout.cu_seqlens.back() + 1);
    layout.block_offsets.push_back(layout.block_offsets.back() + (context + 15) / 16);
  }
  layout.blocks.resize(static_cast<size_t>(layout.block_offsets.back()));
  return layout;
}

// Tokens times heads that an item reads.
int64_t work(const AttentionItem& item) {
  const int64_t first = item.chunk * kAttentionChunk;
  const int64_t last = std::min(item.context, (item.chunk + item.chunks) * kAttentionChunk);
  return (last - first) * item.kv_heads;
}

const std::vector<std::vector<int32_t>> kBatches = {{1},
                                                    {100},
                                                    {256},
                                                    {300},
                                                    {512},
                                                    {513},
                                                    {700},
                                                    {4096},
                                                    {32768},
                                                    {5, 9},
                                                    {4096, 17, 300},
                                                    {32768, 8, 8},
                                                    {512, 512, 512, 512, 512, 512, 512, 512}};

TEST(AttentionPlan, TakesEveryChunkOfEveryHeadOnce) {
  for (const auto& contexts : kBatches)
    for (const AttentionUnit unit :
         {AttentionUnit::kVectors, AttentionUnit::kAvx512Bf16, AttentionUnit::kAmx})
      for (const int threads : {1, kThreads, 7}) {
        const AttentionKernelParams params = make_params(unit);
        const BatchLayout layout = decode_layout(contexts);
        const AttentionPlan plan = plan_attention(params, layout, threads);
        std::map<std::tuple<int64_t, int64_t, int64_t>, int> taken;
        for (const AttentionItem& item : plan.items)
          for (int64_t h = item.kv_head; h < item.kv_head + item.kv_heads; ++h)
            for (int64_t c = item.chunk; c < item.chunk + item.chunks; ++c)
              ++taken[{item.sequence, h, c}];
        size_t expected = 0;
        for (const int32_t context : contexts) expected += 8 * ((context + 255) / 256);
        EXPECT_EQ(taken.size(), expected);
        for (const auto& [place, times] : taken) EXPECT_EQ(times, 1);
      }
}

// `tokens` queries at the end of one context.
BatchLayout chunk_layout(int32_t tokens, int32_t context) {
  BatchLayout layout = decode_layout({context});
  layout.num_tokens = tokens;
  layout.cu_seqlens = {0, tokens};
  layout.positions.clear();
  for (int32_t i = 0; i < tokens; ++i) layout.positions.push_back(context - tokens + i);
  return layout;
}

// A short chunk of a prompt at depth is cut by chunks for more threads than there are kv heads, so
// that no thread is without work.
TEST(AttentionPlan, CutsAShortChunkAtDepthOnlyForMoreThreadsThanHeads) {
  for (const AttentionUnit unit : {AttentionUnit::kAvx512Bf16, AttentionUnit::kAmx}) {
    const BatchLayout layout = chunk_layout(20, 16384);
    const auto plan = [&](int threads) {
      return plan_attention(make_params(unit), layout, threads);
    };
    EXPECT_EQ(plan(8).items.size(), 8u);
    EXPECT_TRUE(plan(8).merges.empty());
    EXPECT_GE(plan(16).items.size(), 32u);
    std::map<std::pair<int64_t, int64_t>, int> merged;
    for (const auto& [item, row, rows] : plan(16).merges)
      for (int64_t r = row; r < row + rows; ++r) ++merged[{item.kv_head, r}];
    EXPECT_EQ(merged.size(), 8 * 20 * 2u);
    for (const auto& [place, times] : merged) EXPECT_EQ(times, 1);
    EXPECT_GE(plan(16).merges.size(), 16u);
    int64_t chunks = 0;
    for (const AttentionItem& item : plan(16).items) chunks += item.chunks * item.kv_heads;
    EXPECT_EQ(chunks, 8 * 64);
  }
}

// With AMX such items have several heads, whose rows are longer runs of memory, and share the
// threads with decoding; what heads alone can share among threads keeps no results of chunks.
TEST(AttentionPlan, GivesShortChunksSeveralHeadsWithAmx) {
  const AttentionKernelParams params = make_params(AttentionUnit::kAmx);
  for (const int32_t tokens : {17, 24, 64}) {
    BatchLayout layout = chunk_layout(tokens, 16384);
    const auto heads = [&](int threads) {
      return plan_attention(params, layout, threads).items[0].kv_heads;
    };
    EXPECT_EQ(heads(2), 2);
    EXPECT_EQ(heads(4), 1);
    EXPECT_EQ(heads(16), 4);
    EXPECT_TRUE(plan_attention(params, layout, 2).merges.empty());
    for (const int64_t context : {3000, 500}) {
      layout.cu_seqlens.push_back(layout.cu_seqlens.back() + 1);
      layout.positions.push_back(static_cast<int32_t>(context - 1));
      layout.seq_lens.push_back(static_cast<int32_t>(context));
      layout.block_offsets.push_back(layout.block_offsets.back() + (context + 15) / 16);
      ++layout.num_sequences;
      ++layout.num_tokens;
    }
    layout.blocks.resize(static_cast<size_t>(layout.block_offsets.back()));
    constexpr int kMany = 16;
    const AttentionPlan plan = plan_attention(params, layout, kMany);
    int64_t busy[kMany] = {}, total = 0;
    for (const AttentionItem& item : plan.items) {
      EXPECT_TRUE(item.on_unit);
      *std::min_element(busy, busy + kMany) += work(item);
      total += work(item);
    }
    EXPECT_EQ(total, 8 * (16384 + 3000 + 500));
    EXPECT_LT(static_cast<double>(*std::max_element(busy, busy + kMany)),
              1.3 * static_cast<double>(total) / kMany);
  }
}

// A chunk of few rows is cut as one token is: by chunks, with all heads in an item.
TEST(AttentionPlan, CutsFewRowsAsDecoding) {
  const std::pair<AttentionUnit, int32_t> most[] = {{AttentionUnit::kAmx, 16},
                                                    {AttentionUnit::kAvx512Bf16, 16}};
  for (const auto& [unit, tokens] : most)
    for (const int threads : {2, 16}) {
      const AttentionPlan few =
          plan_attention(make_params(unit), chunk_layout(tokens, 16384), threads);
      const AttentionPlan one = plan_attention(make_params(unit), decode_layout({16384}), threads);
      ASSERT_EQ(few.items.size(), one.items.size());
      for (size_t i = 0; i < few.items.size(); ++i) {
        EXPECT_EQ(few.items[i].kv_heads, 8);
        EXPECT_EQ(few.items[i].chunk, one.items[i].chunk);
        EXPECT_EQ(few.items[i].chunks, one.items[i].chunks);
      }
      const AttentionPlan more =
          plan_attention(make_params(unit), chunk_layout(tokens + 1, 16384), threads);
      EXPECT_LT(more.items[0].kv_heads, 8);
    }
}

// However long a batch's sequences are, threads that take items in order end about together, and no
// thread reads shorter rows than that needs.
TEST(AttentionPlan, SharesDecodingEvenly) {
  for (const auto& contexts : kBatches) {
    const BatchLayout layout = decode_layout(contexts);
    const AttentionPlan plan = plan_attention(make_params(AttentionUnit::kAmx), layout, kThreads);
    int64_t busy[kThreads] = {}, total = 0;
    for (const AttentionItem& item : plan.items) {
      *std::min_element(busy, busy + kThreads) += work(item);
      total += work(item);
    }
    const double longest = static_cast<double>(*std::max_element(busy, busy + kThreads));
    EXPECT_LT(longest, 1.3 * static_cast<double>(total) / kThreads)
        << contexts.size() << " sequences, the first of " << contexts[0];
  }
}

TEST(AttentionPlan, CutsHeadsOnlyIfChunksDoNotGoRound) {
  const auto heads = [](const std::vector<int32_t>& contexts) {
    const BatchLayout layout = decode_layout(contexts);
    return plan_attention(make_params(AttentionUnit::kAmx), layout, kThreads).items[0].kv_heads;
  };
  EXPECT_EQ(heads({512}), 8);
  EXPECT_EQ(heads({4096}), 8);
  EXPECT_EQ(heads({32768, 8, 8}), 8);
  EXPECT_EQ(heads({256}), 4);
  EXPECT_EQ(heads({100}), 4);
}

}  // namespace
}  // namespace quire::ops
