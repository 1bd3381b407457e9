#pragma once
#include "ops/linear/cuda/linear_cuda.h"

namespace quire::ops {

// How the kernel for few rows (linear_few_rows.cuh) shares a product among warps and blocks.
struct FewRowsPlan {
  int chunk_warps_log = 3;      // 2^n warps have neighbouring chunks, the others other panels
  int panels_per_warp_log = 0;  // 2^n, one after the other
  int x_buffers = 1;
  bool wide_x = false, wide_norm = false;

  QUIRE_HOST_DEVICE constexpr int chunk_warps() const { return 1 << chunk_warps_log; }
  QUIRE_HOST_DEVICE constexpr int panels_per_warp() const { return 1 << panels_per_warp_log; }
  QUIRE_HOST_DEVICE constexpr int panels_log() const {
    return 3 - chunk_warps_log + panels_per_warp_log;
  }
  QUIRE_HOST_DEVICE constexpr int panels() const { return 1 << panels_log(); }
  QUIRE_HOST_DEVICE constexpr int pitch() const { return chunk_warps() * 256 + 8; }
};

// For `tiles` of 8 tokens a block.
constexpr FewRowsPlan few_rows_plan(int64_t k, bool interleaved, int tiles) {
  const int64_t chunks = (k + kLinearCudaChunk - 1) / kLinearCudaChunk;
  FewRowsPlan plan;
  plan.chunk_warps_log = chunks >= 5 ? 3 : (chunks >= 3 ? 2 : (chunks == 2 ? 1 : 0));
  const bool pairs_panels = interleaved && plan.chunk_warps_log == 3;
  plan.panels_per_warp_log = pairs_panels || (tiles > 1 && plan.panels() <= 4) ? 1 : 0;
  plan.x_buffers = tiles <= 2 ? 2 : 1;
  return plan;
}

}  // namespace quire::ops
