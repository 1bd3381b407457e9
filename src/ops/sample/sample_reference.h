#pragma once
#include "ops/sample/sample_row.h"

namespace quire::ops {

// The oracle and the fallback: one row by a full sort in double precision, no vector code, sharing
// nothing with the kernel but the random number.
//
// Returns how far, as a share of the mass, the nearest decision (an edge of the top_p set, an edge
// of the drawn token's interval) was from falling otherwise: the kernel weighs in float32 and may
// differ only where this is of the order of rounding. 1 if nothing was near.
double sample_row_reference(const SampleRow& row, int32_t pending, const float* logits,
                            int64_t vocab, SampledRow& out);

}  // namespace quire::ops
