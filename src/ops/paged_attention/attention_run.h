#pragma once
#include "base/parallel.h"
#include "ops/layout/batch_layout.h"
#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::ops {

// Plans the step and runs it on all threads of the pool. A shared layout must not change any more:
// its plan is kept for the step's other layers.
void run_attention(ThreadPool& pool, const AttentionKernelParams& params,
                   const BatchLayoutPtr& layout);
void run_attention(ThreadPool& pool, const AttentionKernelParams& params,
                   const BatchLayout& layout);

}  // namespace quire::ops
