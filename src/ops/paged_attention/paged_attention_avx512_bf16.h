#pragma once
#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::ops {

// The kernels for `vdpbf16ps` (use_avx512_bf16() in ops/cpu/cpu_isa.h), of bfloat16 queries and
// pools. Their sums have an order of their own (paged_attention.h), so that all items of a call are
// theirs; the rest of the arithmetic is that of paged_attention_cpu.

// For items of any rows. Bytes of a thread's buffers, 64-byte aligned, for items of up to `rows`
// rows; `partials` as in AttentionScratch.
int64_t attention_avx512_bf16_scratch(const AttentionKernelParams& params, int64_t rows);
void paged_attention_avx512_bf16(const AttentionKernelParams& params, const AttentionItem& item,
                                 void* scratch, float* partials);

// The same for items of few rows (max_few_rows), whose values are used in registers as they come
// from the pool, and keys, too, or 16 tokens at a time.
int64_t attention_decode_avx512_bf16_scratch(const AttentionKernelParams& params, int64_t rows);
void paged_attention_decode_avx512_bf16(const AttentionKernelParams& params,
                                        const AttentionItem& item, void* scratch, float* partials,
                                        FollowingItem& following);

}  // namespace quire::ops
