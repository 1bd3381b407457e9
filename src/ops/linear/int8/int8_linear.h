#pragma once
#include "ops/linear/linear_kernel.h"

namespace quire::ops {

// Weights that are whole numbers times scales, affine ones or those of GGUF's formats, times
// activations of 8 bits (PackedMatrix::rounds_activations), for all of linear(). Each row of x is
// quantised by the weight's groups (int8_rows_cpu.h): x ~ sx q_x, with sum sums. For each group, in
// ascending order, of output n:
//   acc = fma(float(sum_k q_w q_x) * sx, scale_n, acc);  acc = fma(sum, bias_n, acc)
// Formats whose bias is -zero * scale (GGUF's without a minimum) have whole numbers q_w - zero:
//   acc = fma(float(sum_k (q_w - zero) q_x) * sx, scale_n, acc)
// The integer sum is exact, so every kernel, whatever order it sums in, gives the same bits. Scales
// and biases are float32: of GGUF's super-blocks the exact products of float16 and small integers,
// of affine weights with zero points -zero * scale, exact too. Groups are those of the packed
// columns (PackedMatrix::columns).
//
// Error: w.x with x off by sx / 2 at most in each element, as if x had been rounded to 8 bits; the
// weights count exactly.
extern const LinearKernel kAmxInt8Linear;
extern const LinearKernel kAvx512VnniInt8Linear;
extern const LinearKernel kAvx2VnniInt8Linear;
extern const LinearKernel kNeonDotprodInt8Linear;
extern const LinearKernel kHighwayInt8Linear;

}  // namespace quire::ops
