#include "ops/paged_attention/attention_kernel.cuh"
#include "ops/paged_attention/attention_launch.cuh"

namespace quire::ops {

void run_attention_codes(CudaStream stream, const AttentionKernelParams& p,
                         const AttentionCudaBatch& batch, const AttentionCudaChoice& choice) {
  p.kv_type == KvType::kInt8 ? run_attention_tiles<DeviceBf16, I8>(stream, p, batch, choice)
                             : run_attention_tiles<DeviceBf16, F8>(stream, p, batch, choice);
}

}  // namespace quire::ops
