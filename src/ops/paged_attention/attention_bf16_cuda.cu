#include "ops/paged_attention/attention_kernel.cuh"
#include "ops/paged_attention/attention_launch.cuh"

namespace quire::ops {

const char* run_attention_bf16(CudaStream stream, const AttentionKernelParams& p,
                               const AttentionCudaBatch& batch) {
  return run_attention_tiles<DeviceBf16, DeviceBf16>(stream, p, batch);
}

}  // namespace quire::ops
