#include "ops/paged_attention/paged_attention_cuda.h"

#include "ops/cuda/cuda_traits.h"
#include "ops/cuda/floats.cuh"
#include "ops/paged_attention/attention_launch.cuh"

namespace quire::ops {

const char* paged_attention_cuda(CudaStream stream, const AttentionKernelParams& p,
                                 const AttentionCudaBatch& batch) {
  const bool wide = is_wide(p.q, p.key_dim) && is_wide(p.k, p.key_dim) && is_wide(p.v, p.key_dim);
  const AttentionCudaChoice choice = choose_attention_cuda(p, batch, wide, cuda_traits());
  if (choice == AttentionCudaChoice()) return nullptr;
  if (choice.few == AttentionCudaKernel::kPlain)
    run_plain_attention(stream, p, batch);
  else if (is_quantised(p.kv_type))
    run_attention_codes(stream, p, batch, choice);
  else
    run_attention_bf16(stream, p, batch, choice);
  return kernel_log_name(choice);
}

}  // namespace quire::ops
