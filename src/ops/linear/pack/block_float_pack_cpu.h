#pragma once
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// What some of the stacked rows share.
struct BlockFloatPart {
  float multiplier = 1, divisor = 1;  // of kScaledNvfp4
  // Of kNestedNf4: the map and the pairs behind it, and how many pairs of other parts come first.
  const float* nested = nullptr;
  int64_t first_pair = 0;
};

// A row as BlockFloatRows has it, all of it; part is null in the padding.
struct BlockFloatRow {
  const BlockFloatPart* part = nullptr;
  const uint8_t* values = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* pairs = nullptr;
};

// Packs 128 k of 16 rows, or as many as there are, as a block of the layout. What the layout has
// once for a panel is that of row 0, which is there. Returns false if the block holds what is no
// weight.
bool block_float_pack_block_cpu(const QuantisedLayout& layout,
                                const BlockFloatRow (&rows)[QuantisedLayout::kPanel], int64_t block,
                                uint8_t* out);

}  // namespace quire::ops
