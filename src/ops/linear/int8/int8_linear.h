#pragma once
#include "ops/linear/quantised_layout.h"

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

// Tile unit: 16 outputs by one step of k are its left operand, x is its right one. A step is 64 k
// of one group, or 32 if groups are that small; the order of k inside it is the weights' (4 bits:
// nibbles of neighbouring bytes are 32 k apart, see quantised_layout.h).
struct Int8AmxLayout {
  QuantisedLayout weights;
  int64_t rows = 0;

  static constexpr int64_t kPairRows = 32;
  // 32 k of 4 bits fill every other byte of 64.
  int64_t step_bytes() const { return weights.bits == 8 && weights.group_size == 32 ? 32 : 64; }
  int64_t groups() const { return weights.k / weights.group_size; }
  int64_t steps_per_group() const { return weights.group_size == 128 ? 2 : 1; }
  int64_t steps() const { return groups() * steps_per_group(); }
  // Rows of x lie in blocks of 16, as a single block if they are no more, else two and two.
  int64_t subs() const { return rows <= 16 ? 1 : 2; }
  int64_t pairs() const { return (rows + kPairRows - 1) / kPairRows; }
  int64_t width() const { return rows <= 16 ? rows : 16; }
  // Bytes of x: [pairs][steps][subs][step_bytes / 4][width][4]
  int64_t x_step() const { return step_bytes() * width(); }
  int64_t x_bytes() const { return pairs() * steps() * subs() * x_step(); }
  // Floats beside it: [pairs][groups][subs][scale, sum][16]
  int64_t side_floats() const { return pairs() * groups() * subs() * 32; }
};

struct Int8AmxRowBatch {
  LinearParams params;
  Int8AmxLayout layout;
  uint8_t* x = nullptr;
  float* side = nullptr;
};

// Quantises and packs block [16 * block, 16 * block + 16) of the rows; `scratch` holds
// int8_amx_pack_scratch(params) bytes, 64-byte aligned.
int64_t int8_amx_pack_scratch(const LinearParams& params);
void int8_amx_pack(const Int8AmxRowBatch& batch, int64_t block, void* scratch);

// Panels [panel, panel + panels) for pairs of row blocks [pair_begin, pair_end). `expanded`: 4-bit
// weights of the panels as int8_amx_expand left them, or null to expand them on the way.
struct Int8AmxBlock {
  int64_t pair_begin = 0, pair_end = 0;
  int64_t panel = 0, panels = 0;
  const uint8_t* expanded = nullptr;
};
void int8_amx_multiply(const Int8AmxRowBatch& batch, const Int8AmxBlock& block);

// One panel of 4-bit weights as tiles [steps][16][64] of bytes.
void int8_amx_expand(const QuantisedLayout& layout, const void* data, int64_t panel, uint8_t* out);

}  // namespace quire::ops
