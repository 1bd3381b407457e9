#pragma once
#include "ops/linear/affine_layout.h"

namespace quire::ops {

// w = round(float(scale) * q + float(bias)) of one panel, as `type` in the layout of a dense
// PackedMatrix: out [ceil32(K)/2][16][2].
void affine_panel_cpu(const AffineLayout& layout, const void* data, int64_t panel, FloatType type,
                      void* out);
// The same of one row: out [K]. May be unaligned.
void affine_row_cpu(const AffineLayout& layout, const void* data, int64_t row, FloatType type,
                    void* out);

}  // namespace quire::ops
