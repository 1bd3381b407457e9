#pragma once
#include "ops/linear/linear_kernel.h"

namespace quire::ops {

// Weights that are whole numbers times scales, affine ones, those of GGUF's formats or e2m1 (whose
// values are halves), times activations of 8 bits (PackedMatrix::rounds_activations), for all of
// linear(). Each row of x is quantised by the weight's groups, or all of it by one scale
// (AffineFormat::per_token; int8_rows_cpu.h): x ~ sx q_x, with sum sums. For each group, in
// ascending order, of output n:
//   acc = fma(float(sum_k q_w q_x) * sx, scale_n, acc);  acc = fma(sum, bias_n, acc)
// Formats whose bias is -zero * scale (GGUF's without a minimum) have whole numbers q_w - zero:
//   acc = fma(float(sum_k (q_w - zero) q_x) * sx, scale_n, acc)
// Those of e2m1 are twice its values, and scale_n half its scale. Of mxfp4 a scale below 2^-125
// counts as zero.
// The integer sum is exact, so every kernel, whatever order it sums in, gives the same bits. Scales
// and biases are float32: of GGUF's super-blocks the exact products of float16 and small integers,
// of affine weights with zero points -zero * scale, exact too. Groups are those of the packed
// columns (PackedMatrix::columns).
//
// Error: w.x with x off by sx / 2 at most in each element, as if x had been rounded to 8 bits; the
// weights count exactly.
//
// With AMX few rows meet VNNI, and products that are worth it tiles.
extern const LinearKernel kAmxInt8Linear;
extern const LinearKernel kAvx512VnniInt8Linear;
extern const LinearKernel kAvx2VnniInt8Linear;
extern const LinearKernel kNeonDotprodInt8Linear;
extern const LinearKernel kHighwayInt8Linear;

// Whether AMX's kernel multiplies a product of so many rows by tiles, which hold 16: where codes
// are unpacked for them, fewer than 49 rows, which would meet codes in registers, must nearly fill
// theirs; those of GGUF that are bytes stay in registers up to 48. Of groups of 16 the sums that
// leave a tile cost more than it saves.
bool int8_goes_by_tiles(const LinearParams& params);

}  // namespace quire::ops
