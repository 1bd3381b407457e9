#pragma once
#include "ops/paged_attention/paged_attention.h"

namespace quire::ops {

// paged_attention() by MLX, over keys and values that are copied out of their pages, sequence by
// sequence: its fused attention, or where that has no form of the scores (soft caps, slopes) the
// reference. On Metal only; it is there to measure what the paged kernel gains.
mx::array attend_gathered(const Context& context, const mx::array& q, const PagedKv& kv,
                          const BatchLayoutPtr& layout, const AttentionParams& params);

}  // namespace quire::ops
