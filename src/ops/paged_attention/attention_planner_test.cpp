#include "ops/paged_attention/attention_planner.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

namespace quire::ops {
namespace {

// Decodes of contexts, each with `rows` new tokens.
BatchLayout layout_of(const std::vector<int32_t>& contexts, int32_t rows) {
  BatchLayout layout;
  layout.block_size = 16;
  layout.num_sequences = static_cast<int64_t>(contexts.size());
  layout.cu_seqlens = {0};
  layout.block_offsets = {0};
  for (const int32_t context : contexts) {
    for (int32_t i = 0; i < rows; ++i) layout.positions.push_back(context - rows + i);
    layout.num_tokens += rows;
    layout.cu_seqlens.push_back(static_cast<int32_t>(layout.num_tokens));
    layout.seq_lens.push_back(context);
    layout.block_offsets.push_back(layout.block_offsets.back() + (context + 15) / 16);
  }
  return layout;
}

constexpr AttentionKernelParams kParams = {.q_type = FloatType::kBf16,
                                           .kv_type = KvType::kBf16,
                                           .heads = 16,
                                           .kv_heads = 8,
                                           .key_dim = 128,
                                           .value_dim = 128,
                                           .block_size = 16};

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

std::vector<BatchLayout> steps() {
  std::mt19937 random(7);
  std::vector<BatchLayout> steps;
  for (int i = 0; i < 60; ++i) {
    std::vector<int32_t> contexts(1 + random() % 64);
    for (int32_t& context : contexts) context = 100 + static_cast<int32_t>(random() % 20'000);
    steps.push_back(layout_of(contexts, i % 3 == 0 ? 40 : 1));
  }
  return steps;
}

// Whatever it planned before.
TEST(AttentionPlanner, PlansEachStepAsIfItWereTheFirst) {
  AttentionPlanner planner;
  bool has_merges = false, has_none = false;
  for (const BatchLayout& layout : steps()) {
    const AttentionCudaPlan& plan = planner.plan(kParams, layout, {}, layout.block_offsets);
    const AttentionCudaPlan expected = plan_attention_cuda(kParams, layout);
    EXPECT_TRUE(same(plan.few, expected.few));
    EXPECT_TRUE(same(plan.many, expected.many));
    EXPECT_TRUE(same(plan.merges, expected.merges));
    EXPECT_EQ(plan.partial_rows, expected.partial_rows);
    (plan.merges.empty() ? has_none : has_merges) = true;
  }
  EXPECT_TRUE(has_merges && has_none);
}

// Lists take turns in the memory that there is.
TEST(AttentionPlanner, KeepsItsMemory) {
  AttentionPlanner planner;
  std::set<const void*> before, after;
  const std::vector<BatchLayout> all = steps();
  const auto run = [&](std::set<const void*>& seen) {
    for (int round = 0; round < 6; ++round)
      for (const BatchLayout& layout : all) {
        const AttentionCudaPlan& plan = planner.plan(kParams, layout, {}, layout.block_offsets);
        for (const auto* list : {&plan.few, &plan.many, &plan.merges})
          if (!list->empty()) seen.insert(list->data());
      }
  };
  run(before);  // until all lists are as long as they get
  before.clear();
  run(before);
  run(after);
  EXPECT_EQ(before, after);
  EXPECT_LE(after.size(), 5u);
}

}  // namespace
}  // namespace quire::ops
