#pragma once
#include <cstdint>

#include "ops/cuda/cuda_stream.h"

namespace quire::ops {

// What is around a recorded step: its values reach the device, its results the host. `host` is
// pinned memory, which the GPU reads and writes by itself: a copy engine would have to be waited
// for.
struct BeginStepCudaParams {
  // Bytes [0, fixed) and [tail, tail + tail_bytes) of the block; all multiples of 16.
  const void* host = nullptr;
  void* block = nullptr;
  int64_t fixed = 0, tail = 0, tail_bytes = 0;
  // The tokens of the step before.
  const int32_t* previous = nullptr;
  int32_t* to = nullptr;
  int64_t num_previous = 0;
  uint64_t* began = nullptr;  // the device's clock, in ns, when all that is there
};
void begin_step_cuda(CudaStream stream, const BeginStepCudaParams& params);

struct StepTimes {
  uint64_t began = 0, ended = 0;  // ns of the device's clock
};

struct EndStepCudaParams {
  const void* results = nullptr;
  void* host = nullptr;
  int64_t bytes = 0;  // a multiple of 16
  const uint64_t* began = nullptr;
  StepTimes* times = nullptr;  // pinned
};
void end_step_cuda(CudaStream stream, const EndStepCudaParams& params);

}  // namespace quire::ops
