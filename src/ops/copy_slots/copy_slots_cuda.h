#pragma once
#include <cstdint>

#include "ops/cuda/cuda_stream.h"

namespace quire::ops {

// Copies slot pairs[i][0] to slot pairs[i][1] in each of two pools; pointers are of the device.
struct CopySlotsCudaParams {
  int64_t count = 0;
  const int32_t* pairs = nullptr;  // [count][2]: from, to
  void *recurrent = nullptr, *conv = nullptr;
  int64_t recurrent_bytes = 0, conv_bytes = 0;  // of a slot
};
void copy_slots_cuda(CudaStream stream, const CopySlotsCudaParams& params);

}  // namespace quire::ops
