#pragma once
#include "ops/linear/pack/affine_matrix.h"

namespace quire::ops {

// The context that packs for the CPU.
inline Context on_host(Context context) {
  context.device = make_cpu_device();
  return context;
}

// For a device without a kernel for `packed`, which on_host(context) has packed, not interleaved: a
// matrix of the values that it stands for.
inline PackedMatrix pack_values(const Context& context, const PackedMatrix& packed,
                                bool interleave) {
  const std::shared_ptr<const std::byte[]> values = dequantise_rows(on_host(context), packed);
  const RowMatrix rows = {
      .data = values.get(), .n = packed.n, .k = packed.k, .dtype = packed.dtype};
  return pack_matrix(context, {&rows, 1}, packed.dtype, interleave);
}

}  // namespace quire::ops
