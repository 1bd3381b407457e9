#pragma once
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// w = round(float(scale) * q + float(bias)) of one row, as `type`: out [K]. May be unaligned.
void affine_row_cpu(const QuantisedLayout& layout, const void* data, int64_t row, FloatType type,
                    void* out);

}  // namespace quire::ops
