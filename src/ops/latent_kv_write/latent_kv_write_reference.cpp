#include "ops/latent_kv_write/latent_kv_write_reference.h"

#include "ops/gather_rows/gather_rows.h"
#include "ops/kv_write/kv_write.h"
#include "ops/rms_norm/rms_norm.h"

namespace quire::ops {

PagedKv latent_kv_write_reference(const Context& context, const mx::array& x,
                                  const mx::array& weight, float eps, const BatchLayoutPtr& layout,
                                  std::shared_ptr<const RopeTable> table, const PagedKv& kv) {
  const int tokens = x.shape(0), rotary = static_cast<int>(table->rotary_dim);
  const mx::array latent = slice_columns(context, x, 0, kv.values_in_keys);
  const mx::array turning = slice_columns(context, x, kv.values_in_keys, rotary);
  const mx::array normed = rms_norm(context, latent, weight, eps);
  const mx::array turned = rope(context, mx::reshape(turning, {tokens, 1, rotary}), layout, table);
  const mx::array row = mx::concatenate({normed, mx::reshape(turned, {tokens, rotary})}, 1);
  const mx::array rows = mx::reshape(row, {tokens, 1, -1});
  // A pool whose values are its keys: the same row is written to the same place twice.
  const PagedKv both = {.k = kv.k, .v = kv.k, .k_scale = kv.k_scale, .v_scale = kv.k_scale};
  const PagedKv written = kv_write(context, rows, rows, both, layout);
  return latent_kv(written.k, written.k_scale, kv.values_in_keys);
}

}  // namespace quire::ops
