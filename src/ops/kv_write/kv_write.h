#pragma once
#include "ops/layout/batch_layout.h"
#include "ops/layout/kv_cache.h"
#include "ops/runtime/context.h"

namespace quire::ops {

// Writes each token's K and V into its slot, in place: the returned handles alias the pool that
// went in, and every later reader must take them.
//   k  [T, K, D], v  [T, K, Dv] in the pool's dtype; any float dtype if the pool is quantised:
//      each row then becomes codes and a scale (kv_quantise_cpu)
//   layout->slot_mapping  [T] distinct slots in any order; negative ones are skipped
// Throws std::invalid_argument if a shape or dtype does not fit, or a slot is beyond the pool.
PagedKv kv_write(const Context& context, const mx::array& k, const mx::array& v, const PagedKv& kv,
                 const BatchLayoutPtr& layout);

}  // namespace quire::ops
