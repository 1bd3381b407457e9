#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/latent_kv_write/latent_kv_write_cpu.h"

namespace quire::ops {

// All tokens; pointers are of the device.
void latent_kv_write_cuda(CudaStream stream, const LatentKvWriteParams& params, int64_t tokens);

}  // namespace quire::ops
