#pragma once
#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::ops {

// The kernel for AMX (use_amx() in ops/cpu_isa.h) and items of many rows, of bfloat16 queries and
// pools: bit for bit that of paged_attention_cpu. Each call loads its own tile configuration.

// Bytes of a thread's buffers for items of up to `rows` rows of one kv head; 64-byte aligned.
int64_t attention_amx_scratch(const AttentionKernelParams& params, int64_t rows);

// Attends the item's rows over all of their chunks.
void paged_attention_amx(const AttentionKernelParams& params, const AttentionItem& item,
                         void* scratch);

}  // namespace quire::ops
