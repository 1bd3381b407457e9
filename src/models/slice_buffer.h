#pragma once
#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "ops/cpu/aligned_bytes.h"

namespace quire::models {

// Memory for what is read of a slice of the weights before it is packed. All slices use it in turn:
// the pages of a new one would have to be cleared first.
class SliceBuffer {
 public:
  // Stays until clear().
  std::byte* take(size_t bytes) {
    for (Chunk& chunk : chunks_)
      if (chunk.size - chunk.used >= bytes) return take_from(chunk, bytes);
    const size_t size = std::max(bytes, kLeast);
    chunks_.push_back({.memory = ops::allocate_aligned(size), .size = size});
    return take_from(chunks_.back(), bytes);
  }
  void clear() {
    for (Chunk& chunk : chunks_) chunk.used = 0;
  }

 private:
  static constexpr size_t kLeast = size_t{4} << 20;
  struct Chunk {
    std::shared_ptr<std::byte[]> memory;
    size_t size = 0, used = 0;
  };
  static std::byte* take_from(Chunk& chunk, size_t bytes) {
    std::byte* data = chunk.memory.get() + chunk.used;
    chunk.used += bytes;
    return data;
  }
  std::vector<Chunk> chunks_;
};

}  // namespace quire::models
