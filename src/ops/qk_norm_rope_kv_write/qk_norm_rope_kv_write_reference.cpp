#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_reference.h"

#include "ops/gather_rows/gather_rows.h"
#include "ops/kv_write/kv_write.h"
#include "ops/rms_norm/rms_norm.h"

namespace quire::ops {

RotatedQueries qk_norm_rope_kv_write_reference(const Context& context, const mx::array& qkv,
                                               const HeadNorms& norms, const BatchLayoutPtr& layout,
                                               std::shared_ptr<const RopeTable> table,
                                               const PagedKv& kv) {
  const int tokens = qkv.shape(0), kv_heads = kv.k.shape(2), dim = kv.k.shape(3);
  const int heads = qkv.shape(1) / dim - 2 * kv_heads - static_cast<int>(norms.gate_heads);
  const auto heads_of = [&](int first, int count) {
    return mx::reshape(slice_columns(context, qkv, int64_t{first} * dim, int64_t{count} * dim),
                       {tokens, count, dim});
  };
  mx::array q = heads_of(0, heads), k = heads_of(heads, kv_heads);
  const auto normed = [&](const mx::array& x, const std::optional<mx::array>& weight) {
    return weight ? rms_norm(context, x, *weight, norms.eps) : x;
  };
  if (norms.follow_rope) {
    q = normed(rope(context, q, layout, table), norms.q);
    k = normed(rope(context, k, layout, table), norms.k);
  } else {
    q = rope(context, normed(q, norms.q), layout, table);
    k = rope(context, normed(k, norms.k), layout, table);
  }
  return {q, kv_write(context, k, heads_of(heads + kv_heads, kv_heads), kv, layout)};
}

}  // namespace quire::ops
