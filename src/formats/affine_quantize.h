#pragma once
#include "formats/quantization.h"
#include "formats/raw_tensor.h"

namespace quire::formats {

// Where one quantised row goes: k * bits / 32 words, lowest bits first, and k / group_size scales
// and biases in the source's dtype.
struct AffineRowOut {
  std::byte* values = nullptr;
  std::byte* scales = nullptr;
  std::byte* biases = nullptr;
};

// Quantises one row of k floats (kF32, kF16 or kBF16; may be unaligned) as mx.quantize does, bit
// for bit: per group, w = scale * q + bias, where the end of the range that is farther from zero is
// met exactly and zero is as good as exact. k is a multiple of the group.
void quantize_row(const std::byte* row, DType dtype, int64_t k, const QuantisedFormat& format,
                  const AffineRowOut& out);

}  // namespace quire::formats
