#include "ops/copy_slots/copy_slots_cuda.h"

#include <algorithm>

#include "ops/cuda/copy.cuh"
#include "ops/cuda/launch.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPiece = 32 << 10;  // bytes that one block copies

__device__ void copy_piece(void* pool, int64_t slot_bytes, int32_t from, int32_t to) {
  const int64_t at = blockIdx.y * kPiece;
  if (at >= slot_bytes) return;
  char* data = static_cast<char*>(pool);
  block_copy(data + from * slot_bytes + at, data + to * slot_bytes + at,
             min(kPiece, slot_bytes - at));
}

__global__ void __launch_bounds__(kThreads) hot_copy(const CopySlotsCudaParams p) {
  begin_dependent();
  const int32_t from = p.pairs[2 * blockIdx.x], to = p.pairs[2 * blockIdx.x + 1];
  copy_piece(p.recurrent, p.recurrent_bytes, from, to);
  copy_piece(p.conv, p.conv_bytes, from, to);
}

}  // namespace

void copy_slots_cuda(CudaStream stream, const CopySlotsCudaParams& p) {
  const unsigned pieces = blocks_for(std::max(p.recurrent_bytes, p.conv_bytes), kPiece);
  launch("copy_slots", stream, hot_copy, dim3(static_cast<unsigned>(p.count), pieces), kThreads, 0,
         p);
}

}  // namespace quire::ops
