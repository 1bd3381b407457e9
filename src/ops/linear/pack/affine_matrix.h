#pragma once
#include <span>

#include "ops/linear/linear.h"
#include "ops/linear/pack/pack_slices.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// A quantised matrix [N, K] as MLX stores it; memory may be unaligned.
struct AffineRows {
  const void* values = nullptr;  // [N, K * bits / 32] uint32: the lowest bits are the first k
  const void* scales = nullptr;  // [N, K / group_size] in format.scale_dtype
  const void* biases = nullptr;  // likewise
  int64_t n = 0, k = 0;
  AffineFormat format;
};

// Bits of a packed value: 4 for 2 to 4, 8 for 5 to 8.
constexpr int packed_bits(int bits) { return bits <= 4 ? 4 : 8; }

// The packed format that holds all parts exactly: the most bits, the smallest groups, and float32
// scales if their dtypes differ. (A 4-bit value is an 8-bit value; a group's scale can be
// repeated.)
AffineFormat common_format(std::span<const AffineRows> parts);

// Packs the rows of `parts` stacked on each other, in their common format, for activations of
// `dtype`; `interleave` and `progress` as in pack_matrix. Parallel. Bits must be 2, 3, 4, 5, 6
// or 8, groups 32, 64 or 128 and divide K.
PackedMatrix pack_affine_matrix(const Context& context, std::span<const AffineRows> parts,
                                mx::Dtype dtype, bool interleave = false,
                                const PackProgress& progress = {});

QuantisedLayout quantised_layout(const PackedMatrix& matrix);

// One dequantised row, as `type`: out [K]. May be unaligned.
void quantised_row_cpu(const QuantisedLayout& layout, const void* data, int64_t row, FloatType type,
                       void* out);

// The dequantised rows [N, K], contiguous, in the matrix's dtype. Parallel.
std::shared_ptr<const std::byte[]> dequantise_rows(const Context& context,
                                                   const PackedMatrix& matrix);

}  // namespace quire::ops
