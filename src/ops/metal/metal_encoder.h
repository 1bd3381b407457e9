#pragma once
#include <mlx/mlx.h>

#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include "ops/metal/metal_call.h"

namespace quire::ops {

namespace mx = mlx::core;

// What a kernel finds at the index of a buffer: numbers, which are copied, or an evaluated array.
struct MetalArgument {
  enum class Use {
    kNumbers,
    kRead,
    kWrite,
    // Read, of memory that later kernels write in place. Counts as written, because MLX orders
    // command buffers by what was written in them alone.
    kReadPool,
  };
  int index = 0;
  Use use = Use::kRead;
  const mx::array* array = nullptr;
  const void* numbers = nullptr;
  size_t bytes = 0;  // of the numbers: at most 4096, which is Metal's limit
};
template <class T>
MetalArgument metal_numbers(int index, const T& numbers) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 4096);
  return {.index = index,
          .use = MetalArgument::Use::kNumbers,
          .numbers = &numbers,
          .bytes = sizeof numbers};
}
inline MetalArgument metal_read(int index, const mx::array& array) {
  return {.index = index, .use = MetalArgument::Use::kRead, .array = &array};
}
inline MetalArgument metal_read_pool(int index, const mx::array& array) {
  return {.index = index, .use = MetalArgument::Use::kReadPool, .array = &array};
}
inline MetalArgument metal_write(int index, const mx::array& array) {
  return {.index = index, .use = MetalArgument::Use::kWrite, .array = &array};
}

// Takes the dispatches of one graph node. A dispatch comes behind those before it that write what
// it reads or writes.
class MetalEncoder {
 public:
  virtual ~MetalEncoder() = default;
  // Does nothing if the call has no threadgroups.
  virtual void dispatch(const MetalCall& call, std::span<const MetalArgument> arguments) = 0;
  // Uninitialised float32 memory for the dispatches of this node.
  virtual mx::array scratch(int64_t floats) = 0;
};

// Hands an op's dispatches to the encoder. All arrays are evaluated; it keeps none of them.
using MetalKernel = std::function<void(MetalEncoder& encoder, const std::vector<mx::array>& inputs,
                                       std::vector<mx::array>& outputs)>;

}  // namespace quire::ops
