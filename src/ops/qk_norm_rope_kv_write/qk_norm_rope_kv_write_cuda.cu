#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cuda.h"

#include "ops/cuda/head_row.cuh"
#include "ops/cuda/kv_codes.cuh"
#include "ops/cuda/launch.cuh"

namespace quire::ops {
namespace {

constexpr int kWarps = 4;
// Blocks that all run at once: few rows, whose time is that of loads which wait for each other.
constexpr int64_t kFewBlocks = 132 * 4;

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

// A warp's copy in shared memory of what no kernel of a step writes, or null.
__device__ inline const float* copy_to_shared(const float* from, int64_t size, float* to) {
  if (from == nullptr) return nullptr;
  for (int64_t i = threadIdx.x % 32; i < size; i += 32) to[i] = from[i];
  return to;
}

// A warp for each head of q, k and v of each token. `ahead`: norms and angles are in shared memory
// before the kernels before this one end.
template <class T, class Pool>
__device__ inline void write_head(const QkNormRopeKvWriteParams& p, int64_t items, bool wide,
                                  bool ahead) {
  extern __shared__ float rows[];
  allow_dependent();
  const int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const Head head = find_head(p, min(item, items - 1));
  const int64_t slot = p.slots[head.token];
  const bool turns = head.is_query || head.is_key;
  const float* norm = head.is_query ? p.q_norm : (head.is_key ? p.k_norm : nullptr);
  const float* angles =
      turns ? p.cos_sin + p.positions[head.token] * p.rotary_dim : nullptr;  // cosines, sines
  float* row = rows + threadIdx.x / 32 * p.head_dim;
  if (ahead) {
    float* kept = rows + (kWarps + threadIdx.x / 32 * 2) * p.head_dim;
    norm = copy_to_shared(norm, p.head_dim, kept);
    angles = copy_to_shared(angles, p.rotary_dim, kept + p.head_dim);
    __syncwarp();
  }
  wait_for_kernels_before();
  if (item >= items || (!head.is_query && slot < 0)) return;
  const T* x = static_cast<const T*>(p.qkv) + head.token * p.row + head.index * p.head_dim;
  stage_row(x, p.norms_follow ? nullptr : norm, p.head_dim, p.eps, wide, row);
  if (turns) turn_row<T>(angles, p.rotary_dim / 2, row);
  if (p.norms_follow && norm != nullptr) norm_row<T>(norm, p.head_dim, p.eps, row);
  if (head.is_query) {
    const int64_t to = (head.token * p.heads + head.index) * p.head_dim;
    return store_row(row, p.head_dim, wide, static_cast<T*>(p.q) + to);
  }
  const int64_t to = slot * p.kv_heads + head.kv_head;
  Pool* pool = static_cast<Pool*>(head.is_key ? p.k : p.v) + to * p.head_dim;
  if constexpr (sizeof(Pool) > 1) {
    store_row(row, p.head_dim, wide, pool);
  } else {
    const float scale = warp_quantise(p.head_dim, [&](int64_t i) { return row[i]; }, pool);
    if (threadIdx.x % 32 == 0) (head.is_key ? p.k_scale : p.v_scale)[to] = scale;
  }
}

template <class T>
__global__ void __launch_bounds__(kWarps * 32)
    hot_write_heads(const QkNormRopeKvWriteParams p, int64_t items, bool wide, bool ahead) {
  write_head<T, T>(p, items, wide, ahead);
}
// Not marked hot: it keeps 32 bytes in memory, once a head.
template <class T, class Pool>
__global__ void __launch_bounds__(kWarps * 32)
    write_coded_heads(const QkNormRopeKvWriteParams p, int64_t items, bool wide, bool ahead) {
  write_head<T, Pool>(p, items, wide, ahead);
}

}  // namespace

void qk_norm_rope_kv_write_cuda(CudaStream stream, const QkNormRopeKvWriteParams& p,
                                int64_t tokens) {
  const int64_t items = tokens * (p.heads + 2 * p.kv_heads);
  const bool wide = is_wide(p.qkv, p.row) && is_wide(p.q, p.head_dim) && is_wide(p.k, p.head_dim) &&
                    is_wide(p.v, p.head_dim);
  with_float_type(p.type, [&](auto t) {
    using T = decltype(t);
    auto kernel = hot_write_heads<T>;
    if (p.kv_type == KvType::kInt8) kernel = write_coded_heads<T, I8>;
    if (p.kv_type == KvType::kFp8) kernel = write_coded_heads<T, F8>;
    const unsigned blocks = blocks_for(items, kWarps);
    const bool ahead = blocks <= kFewBlocks;
    launch("qk_norm_rope_kv_write", stream, kernel, dim3(blocks), kWarps * 32,
           static_cast<size_t>((ahead ? 3 : 1) * kWarps * p.head_dim) * sizeof(float), p, items,
           wide, ahead);
  });
}

}  // namespace quire::ops
