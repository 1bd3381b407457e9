#pragma once
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// The values of one row, float32 by the format's formula, rounded once to `type`: out [K]. May be
// unaligned.
void gguf_row_cpu(const QuantisedLayout& layout, const void* data, int64_t row, FloatType type,
                  void* out);

}  // namespace quire::ops
