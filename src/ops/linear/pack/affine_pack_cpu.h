#pragma once
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// Some of the stacked rows, as MLX stores them.
struct AffinePart {
  const uint8_t* values = nullptr;
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

// Writes one panel of the matrix at `data`. Each part has at most the layout's bits and at least
// its group size; also its scale type and offset, unless the layout has float32 biases.
void affine_pack_panel_cpu(const QuantisedLayout& layout, const AffinePart* parts,
                           int64_t num_parts, int64_t panel, uint8_t* data);

}  // namespace quire::ops
