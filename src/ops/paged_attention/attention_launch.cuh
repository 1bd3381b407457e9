#pragma once
#include "ops/paged_attention/attention_cuda_choice.h"
#include "ops/paged_attention/paged_attention_cuda.h"

namespace quire::ops {

// By tensor cores.
void run_attention_bf16(CudaStream stream, const AttentionKernelParams& p,
                        const AttentionCudaBatch& batch, const AttentionCudaChoice& choice);
void run_attention_codes(CudaStream stream, const AttentionKernelParams& p,
                         const AttentionCudaBatch& batch, const AttentionCudaChoice& choice);

// AttentionCudaKernel::kShared.
void run_shared_chunks(CudaStream stream, const AttentionKernelParams& p,
                       const AttentionCudaBatch& batch);

// AttentionCudaKernel::kWgmmaPrefill.
void run_wgmma_prefill(CudaStream stream, const AttentionKernelParams& p,
                       const AttentionCudaBatch& batch);

// Any dtypes.
void run_plain_attention(CudaStream stream, const AttentionKernelParams& p,
                         const AttentionCudaBatch& batch);

}  // namespace quire::ops
