#include "ops/kv_cache.h"

#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "ops/array_memory.h"
#include "ops/shape_check.h"

namespace quire::ops {

PagedKv make_paged_kv(int64_t num_blocks, int64_t block_size, int64_t kv_heads, int64_t head_dim,
                      mx::Dtype dtype) {
  check_float("make_paged_kv", "dtype", dtype);
  mx::Shape shape;
  for (const int64_t length : {num_blocks, block_size, kv_heads, head_dim}) {
    if (length < 1 || length > std::numeric_limits<mx::ShapeElem>::max())
      throw std::invalid_argument("make_paged_kv: cannot have an axis of length " +
                                  std::to_string(length));
    shape.push_back(static_cast<mx::ShapeElem>(length));
  }
  return {.k = make_lazy_array(shape, dtype), .v = make_lazy_array(shape, dtype)};
}

}  // namespace quire::ops
