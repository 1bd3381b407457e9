#pragma once
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// Some of the stacked rows, as MLX stores them, but for their values.
struct AffinePart {
  const uint8_t* scales = nullptr;
  const uint8_t* biases = nullptr;  // or bytes of zero points, or null
  int64_t n = 0;
  int bits = 0;
  int64_t group_size = 0;
  FloatType scale_type = FloatType::kF32;
  ZeroPoints zeros = ZeroPoints::kNone;
  int least_zero = 0;
};

// A scale and what its group adds to the products, in float32.
struct WideScale {
  float scale = 0, bias = 0;
};
WideScale wide_scale(const AffinePart& part, int64_t index);

// A row of a part and its values; null in the padding.
struct AffineRow {
  const AffinePart* part = nullptr;
  int64_t row = 0;
  const uint8_t* values = nullptr;
};

// Packs 128 k of 16 rows, or as many as there are, as a block of the layout. Each part has at most
// the layout's bits and at least its group size; also its scale type and offset, unless the layout
// has float32 biases.
void affine_pack_block_cpu(const QuantisedLayout& layout,
                           const AffineRow (&rows)[QuantisedLayout::kPanel], int64_t block,
                           uint8_t* out);

}  // namespace quire::ops
