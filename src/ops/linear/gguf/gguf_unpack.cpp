#include "ops/linear/gguf/gguf_unpack.h"

#include <vector>

#include "ops/linear/gguf/gguf_cpu.h"
#include "ops/linear/pack/affine_matrix.h"

namespace quire::ops {

mx::array unpack_gguf(const PackedMatrix& matrix) {
  const QuantisedLayout layout = quantised_layout(matrix);
  std::vector<float> values(static_cast<size_t>(layout.n * layout.k));
  for (int64_t row = 0; row < layout.panels() * QuantisedLayout::kPanel; ++row)
    if (const int64_t source = layout.source_row(row); source >= 0)
      gguf_row_cpu(layout, matrix.data.get(), row, FloatType::kF32,
                   values.data() + source * layout.k);
  const mx::Shape shape = {static_cast<int>(layout.n), static_cast<int>(layout.k)};
  return mx::astype(mx::array(values.data(), shape, mx::float32), matrix.dtype);
}

}  // namespace quire::ops
