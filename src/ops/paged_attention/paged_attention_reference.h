#pragma once
#include "ops/paged_attention/paged_attention.h"

namespace quire::ops {

// Attention in plain MLX ops, float32, sequence by sequence over gathered keys: the oracle.
AttentionWithLse paged_attention_reference(const mx::array& q, const PagedKv& kv,
                                           const BatchLayout& layout,
                                           const AttentionParams& params);

// Of one sequence: q [Tq, H, D], k [K, C, D] and v [K, C, Dv] in float32; the output in float32,
// too.
AttentionWithLse attention_reference(const mx::array& q, const mx::array& k, const mx::array& v,
                                     const BatchLayout& layout, int64_t sequence,
                                     const AttentionParams& params);
// Elements of a pool in float32; those of codes without their scale.
mx::array as_floats(const mx::array& rows);
// [Tq, C]: which keys each query row of the sequence sees.
mx::array visible_keys(const BatchLayout& layout, int64_t sequence, const AttentionParams& params);

}  // namespace quire::ops
