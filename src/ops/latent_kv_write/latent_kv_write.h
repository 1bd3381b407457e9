#pragma once
#include <memory>

#include "ops/layout/batch_layout.h"
#include "ops/layout/kv_cache.h"
#include "ops/rope/rope.h"
#include "ops/runtime/context.h"

namespace quire::ops {

// What latent attention keeps of a token: its latent, RMS-normed, and one rotated key part for all
// heads. Bit for bit rms_norm, rope, and kv_write of both in one row.
//   x       [T, W] in the pool's dtype, or any float dtype if the pool is quantised: then a row
//           becomes codes with one scale. The first L + R columns count, L latent and R rotated
//           ones
//   weight  [L] float32, of the norm; L is kv.values_in_keys
//   kv      make_latent_kv's, [N, P, 1, L + R], at most 1024 elements a row; written in place:
//           later readers must take the handles that are returned
//   table   rotates R dimensions (pairs i, i + R/2) and covers layout->positions
//   layout->slot_mapping  [T] as in kv_write()
// Throws std::invalid_argument if a shape, dtype, position or slot does not fit.
PagedKv latent_kv_write(const Context& context, const mx::array& x, const mx::array& weight,
                        float eps, const BatchLayoutPtr& layout,
                        std::shared_ptr<const RopeTable> table, const PagedKv& kv);

}  // namespace quire::ops
