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
  const void* biases = nullptr;  // likewise; of kBytes a byte each, of kSame null
  int64_t n = 0, k = 0;
  AffineFormat format;
  const int32_t* columns = nullptr;  // [K]: PackedMatrix::columns, or null
};

// Bits of a code as kernels have it: 4 for 2 to 4, 8 for 5 to 8. A GPU and int8_activations store
// them so, too.
constexpr int packed_bits(int bits) { return bits <= 4 ? 4 : 8; }
// QuantisedLayout::narrow_bits.
constexpr int narrow_bits(int bits) { return bits == packed_bits(bits) ? 0 : bits; }

// The packed format that holds all parts exactly: the most bits, the smallest groups, and float32
// scales and biases if their dtypes or zero points differ in kind. (A 4-bit value is an 8-bit
// value; a group's scale can be repeated.) `narrow`: codes may have 2, 3, 5 or 6 bits.
AffineFormat common_format(std::span<const AffineRows> parts, bool narrow);

// Whether the columns of all parts are in one order, and their activations are rounded alike.
bool go_together(std::span<const AffineRows> parts);

// Packs the rows of `parts` stacked on each other, in their common format, for activations of
// `dtype`; `interleave` and `progress` as in pack_matrix. Parallel. Bits must be 2, 3, 4, 5, 6
// or 8, groups 32, 64 or 128 and divide K. Zero points go with scales of 16 bits; on Metal they
// become float32 biases. Parts go together, and their columns are in W's own order on a GPU. On
// Metal parts of different formats become dense.
PackedMatrix pack_affine_matrix(const Context& context, std::span<const AffineRows> parts,
                                mx::Dtype dtype, bool interleave = false,
                                const PackProgress& progress = {});

QuantisedLayout quantised_layout(const PackedMatrix& matrix);

// One dequantised row in the matrix's dtype: out [K], columns in W's own order. May be unaligned.
void dequantise_row(const PackedMatrix& matrix, const QuantisedLayout& layout, int64_t row,
                    void* out);

// The dequantised rows [N, K], contiguous, in the matrix's dtype. Parallel.
std::shared_ptr<const std::byte[]> dequantise_rows(const Context& context,
                                                   const PackedMatrix& matrix);

}  // namespace quire::ops
