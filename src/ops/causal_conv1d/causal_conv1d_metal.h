#pragma once
#include "ops/metal/shared_types.h"
#ifndef __METAL_VERSION__
#include "ops/causal_conv1d/causal_conv1d_cpu.h"
#include "ops/metal/metal_call.h"
#endif

namespace quire::ops {

struct CausalConv1dMetalParams {
  int64_t row;  // W, the row length of x
  int32_t channels;
};

enum CausalConv1dMetalBuffer {
  kConvParams,
  kConvCuSeqlens,   // [S + 1] int32
  kConvPositions,   // [T] int32; a sequence begins at 0
  kConvStateSlots,  // [S] int32; negative: its tokens are left out
  kConvX,           // [T, W]
  kConvWeight,      // [kernel, C] float32
  kConvY,           // [T, C]
  kConvState,       // [slots, kernel - 1, C], in place
};
enum CausalConv1dMetalConstant { kConvTaps };

#ifndef __METAL_VERSION__
struct CausalConv1dMetal {
  CausalConv1dMetalParams params;
  MetalCall call;
};
// All sequences of a step, of which none has more than max_tokens. Of `params` the shapes count.
// Bits: oldest input first, one chain of fused multiply-adds.
CausalConv1dMetal causal_conv1d_metal(const CausalConv1dParams& params, int64_t num_sequences,
                                      int64_t max_tokens);
#endif

}  // namespace quire::ops
