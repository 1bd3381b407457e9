#pragma once
#include "ops/batch_layout.h"
#include "ops/context.h"
#include "ops/kv_cache.h"

namespace quire::ops {

// Writes each token's K and V into its slot, in place: the returned handles alias the pool that
// went in, and every later reader must take them.
//   k  [T, K, D], v  [T, K, Dv] in the pool's dtype
//   layout->slot_mapping  [T]; negative slots are skipped; others are < N * P (validated when the
//   layout is built)
PagedKv kv_write(const Context& context, const mx::array& k, const mx::array& v, const PagedKv& kv,
                 const BatchLayoutPtr& layout);

}  // namespace quire::ops
