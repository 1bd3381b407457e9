#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cpu.h"

namespace quire::ops {

// All tokens; pointers are of the device.
void qk_norm_rope_kv_write_cuda(CudaStream stream, const QkNormRopeKvWriteParams& params,
                                int64_t tokens);

}  // namespace quire::ops
