#include "ops/paged_attention/paged_attention.h"

#include <cmath>
#include <stdexcept>

#include "ops/paged_attention/paged_attention_reference.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "paged_attention";

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument(std::string(kOp) + ": " + what);
}

void check(const mx::array& q, const PagedKv& kv, const BatchLayout& layout,
           const AttentionParams& params) {
  check_float(kOp, "q", q.dtype());
  check_float(kOp, "kv.k", kv.k.dtype());
  check_dtype(kOp, "kv.v", kv.v, kv.k.dtype());
  check_shape(kOp, "q", q, {layout.num_tokens, -1, -1});
  check_shape(kOp, "kv.k", kv.k, {-1, layout.block_size, -1, q.shape(2)});
  check_shape(kOp, "kv.v", kv.v, {kv.k.shape(0), layout.block_size, kv.k.shape(2), -1});
  if (kv.k.shape(2) < 1 || q.shape(1) % kv.k.shape(2) != 0)
    refuse("q has " + std::to_string(q.shape(1)) + " heads, expected a multiple of kv's " +
           std::to_string(kv.k.shape(2)));
  for (const int dim : {kv.k.shape(3), kv.v.shape(3)})
    if (dim < 8 || dim > 512 || dim % 8 != 0)
      refuse("kv has head_dim " + std::to_string(dim) + ", expected a multiple of 8 up to 512");
  if (!std::isfinite(params.scale) || params.scale < 0)
    refuse("scale must be finite and not negative");
  if (!std::isfinite(params.softcap) || params.softcap < 0)
    refuse("softcap must be finite and not negative");
  if (params.sinks) {
    check_dtype(kOp, "sinks", *params.sinks, mx::float32);
    check_shape(kOp, "sinks", *params.sinks, {q.shape(1)});
  }
}

}  // namespace

mx::array paged_attention(const Context& context, const mx::array& q, const PagedKv& kv,
                          const BatchLayoutPtr& layout, const AttentionParams& params) {
  check(q, kv, *layout, params);
  note_reference(context, kOp);
  return paged_attention_reference(q, kv, *layout, params);
}

}  // namespace quire::ops
