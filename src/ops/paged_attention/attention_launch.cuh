#pragma once
#include "ops/paged_attention/paged_attention_cuda.h"

namespace quire::ops {

// By tensor cores; merges are still to do.
void run_attention_bf16(CudaStream stream, const AttentionKernelParams& p,
                        const AttentionCudaBatch& batch);
void run_attention_codes(CudaStream stream, const AttentionKernelParams& p,
                         const AttentionCudaBatch& batch);

// Any dtypes.
void run_plain_attention(CudaStream stream, const AttentionKernelParams& p,
                         const AttentionCudaBatch& batch);

}  // namespace quire::ops
