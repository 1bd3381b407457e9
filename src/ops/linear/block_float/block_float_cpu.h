#pragma once
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// The formula's values of one row, rounded to `type`: out [K]. May be unaligned.
void block_float_row_cpu(const QuantisedLayout& layout, const void* data, int64_t row,
                         FloatType type, void* out);

}  // namespace quire::ops
