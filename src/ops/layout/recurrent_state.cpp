#include "ops/layout/recurrent_state.h"

#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>

#include "ops/runtime/array_memory.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

mx::array make_pool(Device* device, std::initializer_list<int64_t> lengths, mx::Dtype dtype) {
  mx::Shape shape;
  for (const int64_t length : lengths) {
    if (length < 1 || length > std::numeric_limits<mx::ShapeElem>::max())
      throw std::invalid_argument("make_recurrent_state: cannot have an axis of length " +
                                  std::to_string(length));
    shape.push_back(static_cast<mx::ShapeElem>(length));
  }
  return device ? device->make_pool(shape, dtype) : make_lazy_array(shape, dtype);
}

}  // namespace

RecurrentState make_recurrent_state(int64_t slots, const RecurrentStateShape& shape,
                                    mx::Dtype dtype, Device* device) {
  check_float("make_recurrent_state", "dtype", dtype);
  return {
      .recurrent = make_pool(device, {slots, shape.v_heads, shape.v_dim, shape.k_dim}, mx::float32),
      .conv = make_pool(device, {slots, shape.conv_kernel - 1, shape.conv_dim}, dtype)};
}

}  // namespace quire::ops
