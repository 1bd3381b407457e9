#pragma once
#include "formats/quantization.h"
#include "formats/raw_tensor.h"

namespace quire::formats {

// Where one quantised row goes: k * bits / 32 words, lowest bits first, and k / group_size bytes.
struct BlockFloatRowOut {
  std::byte* values = nullptr;
  std::byte* scales = nullptr;
};

// The value of an 8-bit float, e4m3 (OCP's). 0x7F and 0xFF, which are NaN, are the caller's matter.
float float8_value(uint8_t byte);

// Quantises one row of k finite floats (kF32, kF16 or kBF16; may be unaligned) to mxfp4, mxfp8 or
// nvfp4 as mx.quantize does, bit for bit. k is a multiple of the group. Returns how many groups are
// lost: all their weights became 0, since nvfp4 has no scale that is small enough for them.
int64_t quantize_block_float_row(const std::byte* row, DType dtype, int64_t k,
                                 const QuantisedFormat& format, const BlockFloatRowOut& out);

}  // namespace quire::formats
