#pragma once
#include "ops/paged_attention/paged_attention.h"

namespace quire::ops {

// Attention in plain MLX ops, float32, sequence by sequence over gathered keys: the oracle.
AttentionWithLse paged_attention_reference(const mx::array& q, const PagedKv& kv,
                                           const BatchLayout& layout,
                                           const AttentionParams& params);

}  // namespace quire::ops
