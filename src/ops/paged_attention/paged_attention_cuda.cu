#include "ops/paged_attention/paged_attention_cuda.h"

#include "ops/cuda/cuda_traits.h"
#include "ops/paged_attention/attention_launch.cuh"

namespace quire::ops {

const char* paged_attention_cuda(CudaStream stream, const AttentionKernelParams& p,
                                 const AttentionCudaBatch& batch) {
  if (batch.num_tokens == 0) return nullptr;
  if (!has_tensor_core_attention(p, cuda_traits().block_memory)) {
    run_plain_attention(stream, p, batch);
    return "cuda_plain";
  }
  return is_quantised(p.kv_type) ? run_attention_codes(stream, p, batch)
                                 : run_attention_bf16(stream, p, batch);
}

}  // namespace quire::ops
