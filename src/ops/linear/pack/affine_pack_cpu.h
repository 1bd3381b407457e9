#pragma once
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// Some of the stacked rows, as MLX stores them.
struct AffinePart {
  const uint8_t* values = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* biases = nullptr;
  int64_t n = 0;
  int bits = 0;
  int64_t group_size = 0;
  FloatType scale_type = FloatType::kF32;
};

// Writes one panel of the matrix at `data`. Each part has at most the layout's bits, at least its
// group size, and its scale type unless that is float32.
void affine_pack_panel_cpu(const QuantisedLayout& layout, const AffinePart* parts,
                           int64_t num_parts, int64_t panel, uint8_t* data);

}  // namespace quire::ops
