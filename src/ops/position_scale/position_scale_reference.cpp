#include "ops/position_scale/position_scale_reference.h"

namespace quire::ops {

namespace mx = mlx::core;

mx::array position_scale_reference(const mx::array& x, const BatchLayout& layout,
                                   const std::vector<float>& factors) {
  mx::Shape shape(x.ndim(), 1);
  shape[0] = x.shape(0);
  std::vector<float> chosen;
  for (const int32_t position : layout.positions) chosen.push_back(factors.at(position));
  const mx::array rows(chosen.data(), shape);
  return mx::astype(mx::astype(x, mx::float32) * rows, x.dtype());
}

}  // namespace quire::ops
