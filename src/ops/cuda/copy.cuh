#pragma once
#include <cstdint>

namespace quire::ops {

// Copies bytes by the calling block, 16 at a time where both ends are aligned for it.
__device__ inline void block_copy(const char* from, char* to, int64_t bytes) {
  int64_t done = 0;
  if ((reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to)) % 16 == 0) {
    done = bytes / 16 * 16;
    for (int64_t at = threadIdx.x; at < bytes / 16; at += blockDim.x)
      reinterpret_cast<uint4*>(to)[at] = reinterpret_cast<const uint4*>(from)[at];
  }
  for (int64_t at = done + threadIdx.x; at < bytes; at += blockDim.x) to[at] = from[at];
}

}  // namespace quire::ops
