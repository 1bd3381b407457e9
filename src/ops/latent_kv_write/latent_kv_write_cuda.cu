#include "ops/latent_kv_write/latent_kv_write_cuda.h"

#include "ops/cuda/head_row.cuh"
#include "ops/cuda/kv_codes.cuh"
#include "ops/cuda/launch.cuh"

namespace quire::ops {
namespace {

constexpr int kWarps = 4;

// A warp for each token.
template <class T, class Pool>
__global__ void __launch_bounds__(kWarps * 32)
    hot_write_rows(const LatentKvWriteParams p, int64_t tokens, bool wide) {
  extern __shared__ float rows[];
  begin_dependent();
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (token >= tokens) return;
  const int64_t slot = p.slots[token], size = p.latent + p.rotary_dim;
  if (slot < 0) return;
  float* row = rows + threadIdx.x / 32 * size;
  const T* x = static_cast<const T*>(p.x) + token * p.x_row;
  stage_row(x, p.weight, p.latent, p.eps, wide, row);
  stage_row(x + p.latent, nullptr, p.rotary_dim, p.eps, wide, row + p.latent);
  turn_row<T>(p.cos_sin + p.positions[token] * p.rotary_dim, p.rotary_dim / 2, row + p.latent);
  Pool* pool = static_cast<Pool*>(p.rows) + slot * size;
  if constexpr (sizeof(Pool) > 1) {
    store_row(row, size, wide, pool);
  } else {
    const float scale = warp_quantise(size, [&](int64_t i) { return row[i]; }, pool);
    if (threadIdx.x % 32 == 0) p.scale[slot] = scale;
  }
}

}  // namespace

void latent_kv_write_cuda(CudaStream stream, const LatentKvWriteParams& p, int64_t tokens) {
  const int64_t size = p.latent + p.rotary_dim;
  const bool wide =
      is_wide(p.x, p.x_row) && is_wide(p.rows, size) && p.latent % 8 == 0 && p.rotary_dim % 8 == 0;
  with_float_type(p.type, [&](auto t) {
    using T = decltype(t);
    auto kernel = hot_write_rows<T, T>;
    if (p.kv_type == KvType::kInt8) kernel = hot_write_rows<T, I8>;
    if (p.kv_type == KvType::kFp8) kernel = hot_write_rows<T, F8>;
    launch("latent_kv_write", stream, kernel, dim3(blocks_for(tokens, kWarps)), kWarps * 32,
           static_cast<size_t>(kWarps * size) * sizeof(float), p, tokens, wide);
  });
}

}  // namespace quire::ops
