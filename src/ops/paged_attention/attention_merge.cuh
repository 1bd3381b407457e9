#pragma once
#include "ops/cuda/reduce.cuh"
#include "ops/paged_attention/attention_softmax.cuh"

// What joins the chunks of an item that was split among blocks.
namespace quire::ops {

inline constexpr int kMergeAhead = 8;

// 32 columns of a row of an item that was split: a warp joins the chunks in ascending order. They
// are read past the first cache, which may hold what was there before other blocks wrote.
template <class T>
__device__ void merge_columns(const AttentionKernelParams& p, const AttentionCudaBatch& b,
                              const AttentionCudaItem& item, int64_t kv_head, int r, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32, column = first + lane;
  const int64_t group = p.heads / p.kv_heads, size = p.value_dim + 2;
  const int64_t token = item.token + (item.row + r) / group;
  const int64_t head = kv_head * group + (item.row + r) % group;
  const float* results = b.partials + ((int64_t{item.partial} + r) * p.kv_heads + kv_head) * size;
  const int64_t pitch = int64_t{item.rows} * p.kv_heads * size;  // to the next chunk
  const int readable = min(column, static_cast<int>(p.value_dim) - 1);
  AttentionTotal total = attention_begin(p, head);
  float value = 0;
  for (int begin = 0; begin < item.chunks; begin += 32) {
    const int count = min(32, item.chunks - begin);
    const float* own = results + (begin + min(lane, count - 1)) * pitch + p.value_dim;
    const float m = __ldcg(own), l = __ldcg(own + 1);  // of chunk begin + lane
    for (int i = 0; i < count; i += kMergeAhead) {
      float added[kMergeAhead];
#pragma unroll
      for (int j = 0; j < kMergeAhead; ++j)
        added[j] = __ldcg(results + (begin + min(i + j, count - 1)) * pitch + readable);
#pragma unroll
      for (int j = 0; j < kMergeAhead; ++j) {
        const float chunk_m = __shfl_sync(kWholeWarp, m, i + j);
        const float chunk_l = __shfl_sync(kWholeWarp, l, i + j);
        if (i + j >= count) break;
        const JoinFactors f = attention_join(total, chunk_m, chunk_l);
        value = join_value(f, value, added[j]);
      }
    }
  }
  T* out = static_cast<T*>(p.out) + (token * p.heads + head) * p.value_dim;
  if (column < p.value_dim) out[column] = narrow<T>(attention_divide(value, total.l));
  if (p.lse != nullptr && column == 0)
    p.lse[head * p.lse_stride + token] = attention_log_sum(total);
}

// The parts of an item count themselves; the block that is the last joins them. All threads of the
// block, which has left its part's results in batch.partials.
template <class T>
__device__ void merge_if_last(const AttentionKernelParams& p, const AttentionCudaBatch& b,
                              const AttentionCudaItem& part, int64_t kv_head) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* counter = b.counters + part.merge * p.kv_heads + kv_head;
    is_last = atomicAdd(counter, 1) == part.parts - 1;
    if (is_last) *counter = 0;  // for the next layer
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  const AttentionCudaItem item = b.merges[part.merge];
  const int slices = (static_cast<int>(p.value_dim) + 31) / 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
  for (int w = static_cast<int>(threadIdx.x) / 32; w < item.rows * slices; w += warps)
    merge_columns<T>(p, b, item, kv_head, w / slices, w % slices * 32);
}

}  // namespace quire::ops
