#include "ops/kv_cache.h"

#include <mlx/allocator.h>

#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "ops/shape_check.h"

namespace quire::ops {
namespace {

// Memory from the allocator as it is: a pool is tens of gigabytes, of which only the pages that are
// written to cost memory.
mx::array uninitialised(const mx::Shape& shape, mx::Dtype dtype) {
  size_t bytes = mx::size_of(dtype);
  for (const auto length : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(length), &bytes))
      throw std::invalid_argument("make_paged_kv: the pool's size overflows 64 bits");
  }
  auto data = mx::allocator::malloc(bytes);
  if (bytes > 0 && data.buffer().ptr() == nullptr) throw std::bad_alloc();
  return mx::array(std::move(data), shape, dtype);
}

}  // namespace

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
  return {.k = uninitialised(shape, dtype), .v = uninitialised(shape, dtype)};
}

}  // namespace quire::ops
