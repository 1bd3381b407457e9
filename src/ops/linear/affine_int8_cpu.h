#pragma once
#include "ops/linear/affine_layout.h"

namespace quire::ops {

// x in 8 bits, kept as floats: products of 255 * 127 and sums of 128 of them are exact in float32.
struct Int8Slab {
  LinearParams params;
  float* x = nullptr;      // [rows, K]
  float* scale = nullptr;  // [rows, K / group]
  float* sum = nullptr;    // [rows, K / group]
};

// Quantises row `row`; `scratch` holds K * 5 bytes.
void int8_pack_row_cpu(const Int8Slab& slab, int64_t row, void* scratch);

// Outputs of one or two panels (two with silu_mul) for rows [begin, end). From so many rows on the
// weights are first unpacked into `scratch`, K * 16 floats.
constexpr int64_t kInt8UnpackRows = 8;
void int8_panels_cpu(const Int8Slab& slab, int64_t panel, int64_t panels, int64_t begin,
                     int64_t end, float* scratch);

}  // namespace quire::ops
