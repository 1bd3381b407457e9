#pragma once
#include <vector>

#include "ops/paged_attention/paged_attention.h"
#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::ops {

// Launches the Metal kernels on checked arguments; of `kernel` the shapes and windows count.
// Returns [T, H, Dv], and [H, T] with `lse`. Throws as attention_metal().
std::vector<mx::array> attend_on_metal(const Context& context, AttentionKernelParams kernel,
                                       const mx::array& q, const PagedKv& kv,
                                       const BatchLayoutPtr& layout, const AttentionParams& params,
                                       bool lse);

}  // namespace quire::ops
