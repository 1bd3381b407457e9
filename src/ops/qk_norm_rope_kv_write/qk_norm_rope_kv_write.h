#pragma once
#include <memory>
#include <optional>

#include "ops/layout/batch_layout.h"
#include "ops/layout/kv_cache.h"
#include "ops/rope/rope.h"
#include "ops/runtime/context.h"

namespace quire::ops {

// RMS norms of the query and key heads; absent: not normalised.
struct HeadNorms {
  std::optional<mx::array> q, k;  // [D] float32
  float eps = 0;
  bool follow_rope = false;  // of what is rotated already (Hunyuan), not of what will be
  int64_t gate_heads = 0;    // heads after v in each row of qkv, which are not for this op
};

struct RotatedQueries {
  mx::array q;  // [T, H, D]
  PagedKv kv;   // the handles that later readers must take
};

// All that happens between the qkv projection and attention, in one pass over its output: takes q,
// k and v apart, normalises the heads of q and k, rotates them, and writes k and v into their slots
// in place. Bit for bit slice_columns, rms_norm, rope (these two in the order that the norms ask
// for) and kv_write one after the other.
//   qkv    [T, (H + 2 K + G) * D] in the pool's dtype, or any float dtype if the pool is quantised:
//          all heads of q, of k, of v, then G = gate_heads
//   kv     pools [N, P, K, D], both of the same D, at most 1024
//   table  covers layout->positions; layout->slot_mapping [T] as in kv_write()
// Throws std::invalid_argument if a shape, dtype, position or slot does not fit.
RotatedQueries qk_norm_rope_kv_write(const Context& context, const mx::array& qkv,
                                     const HeadNorms& norms, const BatchLayoutPtr& layout,
                                     std::shared_ptr<const RopeTable> table, const PagedKv& kv);

}  // namespace quire::ops
