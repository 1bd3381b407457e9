#pragma once
#include "ops/cuda/reduce.cuh"
#include "ops/paged_attention/attention_softmax.cuh"

// What joins the chunks of an item that was split among blocks.
namespace quire::ops {

inline constexpr int kMergeAhead = 8;

// Up to 32 columns, from `first` on and before `end`, of a row of an item that was split: a warp
// joins the chunks in ascending order. They are read past the first cache, which may hold what was
// there before other blocks wrote.
template <class T>
__device__ void merge_columns(const AttentionKernelParams& p, const AttentionCudaBatch& b,
                              const AttentionCudaItem& item, int64_t kv_head, int r, int first,
                              int end) {
  const int lane = static_cast<int>(threadIdx.x) % 32, column = first + lane;
  const int64_t group = p.heads / p.kv_heads, size = p.value_dim + 2;
  const int64_t token = item.token + (item.row + r) / group;
  const int64_t head = kv_head * group + (item.row + r) % group;
  const float* results = b.partials + ((int64_t{item.partial} + r) * p.kv_heads + kv_head) * size;
  const int64_t pitch = int64_t{item.rows} * p.kv_heads * size;  // to the next chunk
  const int readable = min(column, end - 1);
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
  if (column < end) out[column] = narrow<T>(attention_divide(value, total.l));
  if (p.lse != nullptr && column == 0)
    p.lse[head * p.lse_stride + token] = attention_log_sum(total);
}

// Adds one and returns what was there. What the block wrote before a barrier before it is there for
// blocks that count later.
__device__ inline int32_t count_up(int32_t* counter) {
  int32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}

// Which columns of an item's values a block has: share `index` of `count`.
struct ColumnShare {
  int index = 0, count = 1;
};

// The parts of an item count themselves; the block that is the last joins them. All threads of the
// block, which has left its part's results, of its share of the columns, in batch.partials.
template <class T>
__device__ void merge_if_last(const AttentionKernelParams& p, const AttentionCudaBatch& b,
                              const AttentionCudaItem& part, int64_t kv_head, ColumnShare share) {
  __shared__ bool is_last;
  const AttentionCudaItem item = b.merges[part.merge];
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* counter = b.counters + (part.merge * p.kv_heads + kv_head) * share.count + share.index;
    is_last = count_up(counter) == part.parts - 1;
    if (is_last) *counter = 0;  // for the next layer
  }
  __syncthreads();
  if (!is_last) return;
  const int columns = static_cast<int>(p.value_dim) / share.count;
  const int slices = (columns + 31) / 32, warps = static_cast<int>(blockDim.x) / 32;
  for (int w = static_cast<int>(threadIdx.x) / 32; w < item.rows * slices; w += warps) {
    const int first = share.index * columns;
    merge_columns<T>(p, b, item, kv_head, w / slices, first + w % slices * 32, first + columns);
  }
}

}  // namespace quire::ops
