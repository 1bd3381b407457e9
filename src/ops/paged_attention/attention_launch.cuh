#pragma once
#include "ops/paged_attention/paged_attention_cuda.h"

namespace quire::ops {

// By tensor cores. They return the kernels' name, as paged_attention_cuda does.
const char* run_attention_bf16(CudaStream stream, const AttentionKernelParams& p,
                               const AttentionCudaBatch& batch);
const char* run_attention_codes(CudaStream stream, const AttentionKernelParams& p,
                                const AttentionCudaBatch& batch);

// The items of few rows on Hopper in steps of few sequences, if they are few, too
// (attention_shared_sm90_cuda.cu).
bool has_shared_chunks(const AttentionKernelParams& p, const AttentionCudaBatch& batch);
void run_shared_chunks(CudaStream stream, const AttentionKernelParams& p,
                       const AttentionCudaBatch& batch);

// The items of many rows on Hopper (attention_prefill_sm90_cuda.cu): heads of 64 or 128 and pages
// that tiles of 64 keys consist of, or the other way round.
bool has_wgmma_prefill(const AttentionKernelParams& p);
void run_wgmma_prefill(CudaStream stream, const AttentionKernelParams& p,
                       const AttentionCudaBatch& batch);

// Any dtypes.
void run_plain_attention(CudaStream stream, const AttentionKernelParams& p,
                         const AttentionCudaBatch& batch);

}  // namespace quire::ops
