#include "ops/paged_attention/attention_kernel.cuh"
#include "ops/paged_attention/attention_launch.cuh"

namespace quire::ops {

const char* run_attention_codes(CudaStream stream, const AttentionKernelParams& p,
                                const AttentionCudaBatch& batch) {
  return p.kv_type == KvType::kInt8 ? run_attention_tiles<DeviceBf16, I8>(stream, p, batch)
                                    : run_attention_tiles<DeviceBf16, F8>(stream, p, batch);
}

}  // namespace quire::ops
