#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cuda.h"

#include "ops/cuda/kv_codes.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/rotate.cuh"

namespace quire::ops {
namespace {

constexpr int kWarps = 4;

struct Head {
  int64_t token, index;  // index: in the row of qkv
  bool is_query, is_key;
  int64_t kv_head;
};

__device__ inline Head find_head(const QkNormRopeKvWriteParams& p, int64_t item) {
  const int64_t per_token = p.heads + 2 * p.kv_heads, index = item % per_token;
  Head head = {item / per_token, index, index < p.heads, false, 0};
  if (!head.is_query) {
    head.is_key = index < p.heads + p.kv_heads;
    head.kv_head = index - p.heads - (head.is_key ? 0 : p.kv_heads);
  }
  return head;
}

// The head in float32, normalised and rounded if it has a norm, into `row` of shared memory.
template <class T>
__device__ inline void stage(const QkNormRopeKvWriteParams& p, const T* x, const float* norm,
                             bool wide, float* row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float scale = norm != nullptr ? warp_inverse_rms(x, p.head_dim, wide, p.eps) : 0.0f;
  for (int64_t at = lane * 8; at < p.head_dim; at += 256) {
    float v[8];
    load_some8(x, at, p.head_dim, wide, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (at + i >= p.head_dim) break;
      row[at + i] = norm != nullptr ? rounded<T>(v[i] * scale * norm[at + i]) : v[i];
    }
  }
  __syncwarp();
}

// Rotates the head in `row`; the result is rounded, and in `row` again.
template <class T>
__device__ inline void turn(const QkNormRopeKvWriteParams& p, int64_t token, float* row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t half = p.rotary_dim / 2;
  const float* cos_sin = p.cos_sin + p.positions[token] * p.rotary_dim;
  for (int64_t i = lane; i < half; i += 32) {
    const auto at = [&](int64_t j) { return row[j]; };
    const float a = rotated(i, half, cos_sin, at), b = rotated(i + half, half, cos_sin, at);
    row[i] = rounded<T>(a);
    row[i + half] = rounded<T>(b);
  }
  __syncwarp();
}

template <class T>
__device__ inline void store(const float* row, int64_t size, bool wide, T* to) {
  for (int64_t at = threadIdx.x % 32 * 8; at < size; at += 256) {
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = at + i < size ? row[at + i] : 0.0f;
    store_some8(to, at, size, wide, v);
  }
}

// A warp for each head of q, k and v of each token.
template <class T, class Pool>
__global__ void __launch_bounds__(kWarps * 32)
    write_heads(const QkNormRopeKvWriteParams p, int64_t items, bool wide) {
  extern __shared__ float rows[];
  begin_dependent();
  const int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (item >= items) return;
  const Head head = find_head(p, item);
  const int64_t slot = p.slots[head.token];
  if (!head.is_query && slot < 0) return;
  float* row = rows + threadIdx.x / 32 * p.head_dim;
  const T* x = static_cast<const T*>(p.qkv) + head.token * p.row + head.index * p.head_dim;
  stage(p, x, head.is_query ? p.q_norm : (head.is_key ? p.k_norm : nullptr), wide, row);
  if (head.is_query || head.is_key) turn<T>(p, head.token, row);
  if (head.is_query) {
    const int64_t to = (head.token * p.heads + head.index) * p.head_dim;
    return store(row, p.head_dim, wide, static_cast<T*>(p.q) + to);
  }
  const int64_t to = slot * p.kv_heads + head.kv_head;
  Pool* pool = static_cast<Pool*>(head.is_key ? p.k : p.v) + to * p.head_dim;
  if constexpr (sizeof(Pool) > 1) {
    store(row, p.head_dim, wide, pool);
  } else {
    const float scale = warp_quantise(p.head_dim, [&](int64_t i) { return row[i]; }, pool);
    if (threadIdx.x % 32 == 0) (head.is_key ? p.k_scale : p.v_scale)[to] = scale;
  }
}

}  // namespace

void qk_norm_rope_kv_write_cuda(CudaStream stream, const QkNormRopeKvWriteParams& p,
                                int64_t tokens) {
  const int64_t items = tokens * (p.heads + 2 * p.kv_heads);
  const bool wide = is_wide(p.qkv, p.row) && is_wide(p.q, p.head_dim) && is_wide(p.k, p.head_dim) &&
                    is_wide(p.v, p.head_dim);
  with_float_type(p.type, [&](auto t) {
    using T = decltype(t);
    auto kernel = write_heads<T, T>;
    if (p.kv_type == KvType::kInt8) kernel = write_heads<T, I8>;
    if (p.kv_type == KvType::kFp8) kernel = write_heads<T, F8>;
    launch("qk_norm_rope_kv_write", stream, kernel, dim3(blocks_for(items, kWarps)), kWarps * 32,
           static_cast<size_t>(kWarps * p.head_dim) * sizeof(float), p, items, wide);
  });
}

}  // namespace quire::ops
