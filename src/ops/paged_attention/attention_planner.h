#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ops/paged_attention/paged_attention_cuda.h"

namespace quire::ops {

// plan_attention_cuda for one step after another, in lists that are kept: a step that needs no
// longer ones than those before it allocates nothing.
class AttentionPlanner {
 public:
  AttentionPlanner() = default;
  // With room for all steps that need no more than this, but that the first context of more than
  // 1,022 chunks of keys makes one list grow.
  explicit AttentionPlanner(const AttentionCudaSizes& most);

  // As long as no other step is planned.
  const AttentionCudaPlan& plan(const AttentionKernelParams& params, const BatchLayout& layout,
                                const AttentionCudaLimits& limits,
                                std::span<const int64_t> block_offsets);

 private:
  void add_items(const AttentionKernelParams& params, const BatchLayout& layout,
                 const AttentionCudaLimits& limits, std::span<const int64_t> block_offsets);
  void split_long(int64_t fair, int64_t most_slots);
  void put_longest_first(std::vector<AttentionCudaItem>& items);

  AttentionCudaPlan plan_;
  std::vector<AttentionCudaItem> unsplit_, sorted_;
  std::vector<size_t> begins_;
  int64_t chunks_ = 0;       // of all items of few rows
  int32_t most_chunks_ = 0;  // of one of them
};

}  // namespace quire::ops
