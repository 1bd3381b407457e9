#pragma once
#include <cstdint>
#include <span>

#include "base/parallel.h"
#include "ops/cpu/half.h"
#include "ops/gated_activation/gate.h"
#include "ops/linear/affine/zero_points.h"
#include "ops/linear/block_float/block_float.h"
#include "ops/linear/gguf/gguf_format.h"

namespace quire::ops {

// What a CPU kernel of linear() computes: y = x W^T + b. The first block alone chooses the kernel.
struct LinearParams {
  FloatType type = FloatType::kF32;  // of x, and of the weight's values (once dequantised)
  // A quantised weight, laid out as quantised_layout.h says. bits = 0: w holds values of `type`.
  int bits = 0;
  int narrow_bits = 0;  // of a stored code, if these are fewer: narrow_codes.h
  int64_t group_size = 0;
  BlockFloat block_float = BlockFloat::kNone;
  GgufFormat gguf = GgufFormat::kNone;     // neither of them: the weight is affine
  FloatType scale_type = FloatType::kF32;  // of affine weights
  ZeroPoints zeros = ZeroPoints::kNone;
  int least_zero = 0;
  bool int8_activations = false;
  bool per_token = false;  // AffineFormat::per_token
  bool turned = false;     // quantised codes: quantised_layout.h
  // Matrices of formats that differ, stacked: w is [num_parts] LinearParams of their formats, each
  // with its n, k and w. With a gate they are two, gate and up.
  int64_t num_parts = 0;

  FloatType out_type = FloatType::kF32;
  int64_t rows = 0, n = 0, k = 0;
  const void* x = nullptr;      // [rows, K]
  const void* w = nullptr;      // packed
  const float* bias = nullptr;  // [N], or null
  // x is RMS-normed first, as ops::rms_norm does it; then its columns are put in the packed order.
  const int32_t* columns = nullptr;    // [K]: PackedMatrix::columns, or null
  const float* norm_weight = nullptr;  // [K], or null
  float norm_eps = 0;
  const void* residual = nullptr;  // [rows, N] of out_type, added to the rounded result; or null
  // The weight holds panels of gate and up in turn, and y is what `gate` makes of them [rows, N/2].
  bool gated = false;
  Gate gate = {};
  void* y = nullptr;  // [rows, N]

  int64_t panels() const;  // of the weight
  // Whether it is quantised by whole numbers: affine, or a format of GGUF.
  bool has_integers() const { return bits != 0 && block_float == BlockFloat::kNone; }
  // The same of rows [first, first + count), or as many of these as there are.
  LinearParams row_range(int64_t first, int64_t count) const;
  int64_t y_columns() const { return gated ? n / 2 : n; }
};

// One way to compute linear(), for some formats on some instruction sets.
//
// Bits: a kernel follows the order of sums that linear.h promises (or, if it has another, has that
// one for every number of rows), and dequantises affine values exactly as ops::linear documents.
struct LinearKernel {
  const char* (*name)();  // in the KernelLog
  // Whether it serves this format on the instruction set in force. Must not look at the rows: the
  // choice, and with it the bits, may not depend on the batch.
  bool (*serves)(const LinearParams& params);
  // Computes all rows, on the pool's threads. Called on MLX's stream thread, one call at a time.
  void (*run)(ThreadPool& pool, const LinearParams& params);
  // Likewise several products of one format and size: their tasks are one pool of work, so that
  // small matrices keep all threads busy. Null: run() one after the other.
  void (*run_all)(ThreadPool& pool, std::span<const LinearParams> products) = nullptr;
  bool reads_turned = false;      // turned codes, if it serves them
  bool int8_activations = false;  // whether it is for LinearParams that ask for them, or for others
};

// The best kernel for the format, or null.
const LinearKernel* find_linear_kernel(const LinearParams& params);

// The same. Throws std::logic_error where there is none: the codes of a quantised weight lie as
// another instruction set wants them than the one in force now (PackedMatrix::turned).
const LinearKernel& linear_kernel_for(const LinearParams& params);

// Whether weights of this format are packed with turned codes, for the kernel that serves them on
// the instruction set in force.
bool packs_turned(LinearParams params);

// Of the packed layout: chunks of 32 k, panels of 16 outputs.
inline int64_t linear_chunks(int64_t k) { return (k + 31) / 32; }
inline int64_t linear_panels(int64_t n) { return (n + 15) / 16; }

// Interleaved gates and ups are padded to whole panels each.
inline int64_t linear_panels(int64_t n, bool interleaved) {
  return interleaved ? 2 * linear_panels(n / 2) : linear_panels(n);
}
inline int64_t LinearParams::panels() const { return linear_panels(n, gated); }

// Several products of one format and size, none of which reads what another one writes.
void run_linears(ThreadPool& pool, const LinearKernel& kernel,
                 std::span<const LinearParams> products);

// Row `row` of x, RMS-normed and with its columns in the weight's order if the params say so: then
// in `buffer` (K elements). Inside a loop of the pool, or where denormals are zero as there.
const void* linear_row(const LinearParams& params, int64_t row, void* buffer);

// 64-byte aligned scratch of the calling thread, grown to the largest size it was asked for. What
// it holds is lost with the next call.
void* linear_scratch(int64_t bytes);
// Another one, for tasks: the stream thread takes part in loops while its linear_scratch is in use.
void* linear_task_scratch(int64_t bytes);

}  // namespace quire::ops
