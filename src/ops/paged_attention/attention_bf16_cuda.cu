#include "ops/paged_attention/attention_kernel.cuh"
#include "ops/paged_attention/attention_launch.cuh"

namespace quire::ops {

void run_attention_bf16(CudaStream stream, const AttentionKernelParams& p,
                        const AttentionCudaBatch& batch, const AttentionCudaChoice& choice) {
  run_attention_tiles<DeviceBf16, DeviceBf16>(stream, p, batch, choice);
}

}  // namespace quire::ops
