#pragma once
#include <vector>

#include "ops/layout/batch_layout.h"
#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::ops {

// How a step's attention is shared among threads. The plan changes which thread computes what,
// never a bit of it.
struct AttentionPlan {
  // Some rows of an item that was split by chunks.
  struct Merge {
    AttentionItem item;  // whole
    int64_t row = 0, rows = 0;
  };
  std::vector<AttentionItem> items;  // long ones first
  std::vector<Merge> merges;
  int64_t partials = 0;  // floats of all split items' results
  int64_t max_rows = 0;  // of any item, but those for a unit that are not split
};

AttentionPlan plan_attention(const AttentionKernelParams& params, const BatchLayout& layout,
                             int num_threads);

}  // namespace quire::ops
