#pragma once
#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::ops {

// The kernels for AVX-512 with VNNI (use_avx512_vnni() in ops/cpu/cpu_isa.h), of bfloat16 queries
// and int8 pools: bit for bit paged_attention_cpu, since sums over codes are exact.

// For items of any rows. Bytes of a thread's buffers, 64-byte aligned, for items of up to `rows`
// rows; `partials` as in AttentionScratch.
int64_t attention_int8_avx512_vnni_scratch(const AttentionKernelParams& params, int64_t rows);
void paged_attention_int8_avx512_vnni(const AttentionKernelParams& params,
                                      const AttentionItem& item, void* scratch, float* partials);

// The same for items of few rows (max_few_rows), whose keys and values are used in registers as
// they come from the pool.
int64_t attention_decode_int8_avx512_vnni_scratch(const AttentionKernelParams& params,
                                                  int64_t rows);
void paged_attention_decode_int8_avx512_vnni(const AttentionKernelParams& params,
                                             const AttentionItem& item, void* scratch,
                                             float* partials, FollowingItem& following);

}  // namespace quire::ops
