#pragma once
#include <mlx/mlx.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ops/gated_activation/gate.h"
#include "ops/linear/affine/zero_points.h"
#include "ops/linear/block_float/block_float.h"
#include "ops/linear/gguf/gguf_format.h"
#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// Values quantised in groups of `group_size` neighbouring k of one output row:
// w = round_to_dtype(float(scale) * q + float(bias)), q in [0, 2^bits), in the PackedMatrix's
// dtype. With zero points z, whole numbers up to 256, bias is -z * float(scale): float32 holds that
// exactly, and `scale_dtype` is one of 16 bits.
struct AffineFormat {
  int bits = 0;
  int64_t group_size = 0;
  mx::Dtype scale_dtype = mx::float32;  // of scales and biases
  ZeroPoints zeros = ZeroPoints::kNone;
  int least_zero = 0;  // the least zero point: zero_points.h
  // linear() quantises x to 8 bits by the same groups, see int8_linear.h: less exact.
  bool int8_activations = false;
  bool per_token = false;  // of int8_activations: a row of x has one scale, not one for a group
  bool operator==(const AffineFormat&) const = default;
};

struct MlxMatrix;

// A weight matrix [N, K] in the CPU kernels' layout: panels of 16 output rows, K in pairs,
// [ceil(N/16)][ceil32(K)/2][16][2], so that one vector load holds two neighbouring k of 16 outputs.
// One layout for every M and every instruction set (AMX reads it as it is). Rows and columns of
// padding are zero. Memory is 64-byte aligned.
struct PackedMatrix {
  int64_t n = 0, k = 0;
  mx::Dtype dtype = mx::float32;
  std::shared_ptr<const std::byte[]> data = nullptr;
  // Quantised: `data` holds integers, scales and biases in the layout of quantised_layout.h; dtype
  // is that of x and of the dequantised values.
  std::optional<AffineFormat> affine = std::nullopt;
  // Quantised to small floats, in the same layout.
  BlockFloat block_float = BlockFloat::kNone;
  // In a block format of GGUF files: its scales and codes, in the same layout. Values are those of
  // gguf_reference.h, rounded once to dtype.
  GgufFormat gguf = GgufFormat::kNone;
  bool int8_activations = false;  // of these two: as AffineFormat::int8_activations
  // The first N/2 rows (gate) and the last (up) are packed in turn, a panel of each, so that one
  // task has both for the gate. Each half is padded to whole panels.
  bool interleaved = false;
  // Quantised: the codes lie as the kernel for the instruction set in force reads them best
  // (quantised_layout.h). After force_cpu_isa() there may be no kernel that reads them: then
  // linear(), head_linear() and moe_experts() throw std::logic_error.
  bool turned = false;
  // Affine: the packed columns are those of W in this order, [K], so that those of a group are
  // neighbours; null: in W's own.
  std::shared_ptr<const int32_t[]> columns = nullptr;
  // Matrices stacked on each other (stack_matrices), whose formats differ, or (on Metal) which lie
  // in different places; interleaved: gate, up.
  // Then all of the above but n, k and dtype is theirs, and `data` keeps them.
  const std::vector<PackedMatrix>* parts = nullptr;
  // On Metal: as MLX has it, in place of all of the above but n, k, dtype and interleaved (which
  // says that gate and up are stacked).
  std::shared_ptr<const MlxMatrix> mlx = nullptr;
  bool is_quantised() const;
  bool rounds_activations() const;  // quantised: by int8_activations
  size_t nbytes() const;
};

// y = x W^T + b.
struct LinearWeight {
  PackedMatrix weight;
  std::optional<mx::array> bias = std::nullopt;  // [N] float32
};

// Where a weight comes from: rows [N, K] contiguous in `dtype` (may be unaligned, e.g. inside a
// mapped file).
struct RowMatrix {
  const void* data = nullptr;
  int64_t n = 0, k = 0;
  mx::Dtype dtype = mx::float32;
};

// Packs the rows of `parts` stacked on each other (fused qkv, gate+up), converted to `dtype`;
// `interleave` the two halves of the stack for LinearOptions::gate. Parallel.
PackedMatrix pack_matrix(const Context& context, std::span<const RowMatrix> parts, mx::Dtype dtype,
                         bool interleave = false);

// Neighbours that linear() computes on the way, each bit for bit as its own op would.
struct LinearOptions {
  struct Norm {
    mx::array weight;  // [K] float32
    float eps = 0;
  };
  std::optional<mx::Dtype> out_dtype = std::nullopt;  // default x's dtype; float32 for logits
  std::optional<Norm> norm = std::nullopt;            // x is ops::rms_norm(x) first
  // [T, N] in the output's dtype: y = round(round(x W^T + b) + residual).
  std::optional<mx::array> residual = std::nullopt;
  // The weight is interleaved: y [T, N/2] = ops::gated_activation of the rounded product.
  std::optional<Gate> gate = std::nullopt;
};

//   x      [T, K] in the weight's dtype
//   w      [N, K]
// Returns [T, N] ([T, N/2] with a gate) in options.out_dtype.
//
// Bits: each output element is reduced over K in one fixed order whatever T is and however threads
// split the work. Per 32 k an even-k chain and an odd-k chain of 16 fused multiply-adds start at 0;
// then acc += even + odd, with denormals as zero; the bias comes last, then one rounding. That is
// the order of the AMX bfloat16 unit, so matrix and vector kernels can agree. AVX2 and AVX-512 do,
// bit for bit; the portable kernel keeps the order but has no fused multiply-add. Of a weight with
// PackedMatrix::columns, K is walked in their order. A quantised weight gives the bits of the dense
// weight of its dequantised values, unless it asks for int8_activations: that has its own order
// (int8_linear.h), just as fixed and the same on every instruction set.
mx::array linear(const Context& context, const mx::array& x, const LinearWeight& w,
                 const LinearOptions& options = {});

}  // namespace quire::ops
