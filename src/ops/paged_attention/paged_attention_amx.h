#pragma once
#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::ops {

// The kernels for AMX (use_amx() in ops/cpu/cpu_isa.h), of bfloat16 queries and pools of bfloat16
// or codes: bit for bit paged_attention_cpu. Each call loads its own tile configuration.

// For items of many rows. Bytes of a thread's buffers for items of up to `rows` rows of each of so
// many kv heads; 64-byte aligned.
int64_t attention_amx_scratch(const AttentionKernelParams& params, int64_t rows, int64_t heads);

// Attends the item's rows over its chunks; `partials` as in AttentionScratch.
void paged_attention_amx(const AttentionKernelParams& params, const AttentionItem& item,
                         void* scratch, float* partials);

// The same for items of few rows (max_few_rows: in their parts they are the columns of a tile);
// `rows` are those of the whole item.
int64_t attention_decode_amx_scratch(const AttentionKernelParams& params, int64_t rows);
void paged_attention_decode_amx(const AttentionKernelParams& params, const AttentionItem& item,
                                void* scratch, float* partials, FollowingItem& following);

// The one for int8 pools.
int64_t attention_decode_int8_amx_scratch(const AttentionKernelParams& params, int64_t rows);
void paged_attention_decode_int8_amx(const AttentionKernelParams& params, const AttentionItem& item,
                                     void* scratch, float* partials, FollowingItem& following);

}  // namespace quire::ops
