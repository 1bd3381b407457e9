#pragma once
#include "ops/metal/shared_types.h"
#ifndef __METAL_VERSION__
#include "ops/metal/metal_call.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cpu.h"
#endif

namespace quire::ops {

struct QkNormRopeKvWriteMetalParams {
  int64_t items;  // heads of q, k and v of all tokens
  int64_t row;    // length of a row of qkv
  int32_t heads, kv_heads, head_dim, rotary_half;
  float eps;
};

// Where the kernel finds its arrays; q and the pools are written.
enum QkNormRopeKvWriteMetalBuffer {
  kQkRopeParams,
  kQkRopePositions,  // [T] int32
  kQkRopeSlots,      // [T] int64; negative: do not write
  kQkRopeCosSin,     // [max_positions, 2, rotary_half] float32
  kQkRopeQNorm,      // [D] float32, if there is one
  kQkRopeKNorm,
  kQkRopeQkv,      // [T, row]
  kQkRopeQ,        // [T, H, D]
  kQkRopeKeyPool,  // [N, P, K, D]
  kQkRopeValuePool,
  kQkRopeKeyScale,  // [N, P, K] float32, of pools of codes
  kQkRopeValueScale,
};
enum QkNormRopeKvWriteMetalConstant {
  kQkRopeHasQNorm,
  kQkRopeHasKNorm,
  kQkRopeNormsFollow,
  kQkRopeHasCodes,
  kQkRopeIsFp8,  // of codes
};

#ifndef __METAL_VERSION__
struct QkNormRopeKvWriteMetal {
  QkNormRopeKvWriteMetalParams params;
  MetalCall call;
};
// All tokens, into pools of qkv's type, or as kv_quantise_metal() writes them. Of `params` the
// shapes count, and whether a norm is null. A row's squares are summed in 32 chains, column mod 32,
// and these as simd_sum does; normed and rotated values are rounded to the type, each once.
QkNormRopeKvWriteMetal qk_norm_rope_kv_write_metal(const QkNormRopeKvWriteParams& params,
                                                   int64_t tokens);
#endif

}  // namespace quire::ops
