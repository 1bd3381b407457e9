#include "ops/paged_attention/paged_attention_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/paged_attention/attention_launch.cuh"
#include "ops/paged_attention/attention_softmax.cuh"

namespace quire::ops {
namespace {

constexpr int kMergeWarps = 8, kMergeAhead = 8;

// 32 columns of a row of an item that was split: a warp joins the chunks in ascending order.
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
    const float m = own[0], l = own[1];  // of chunk begin + lane
    for (int i = 0; i < count; i += kMergeAhead) {
      float added[kMergeAhead];
#pragma unroll
      for (int j = 0; j < kMergeAhead; ++j)
        added[j] = results[(begin + min(i + j, count - 1)) * pitch + readable];
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

template <class T>
__global__ void __launch_bounds__(kMergeWarps * 32)
    merge(const AttentionKernelParams p, const AttentionCudaBatch b) {
  begin_dependent();
  const int slices = (static_cast<int>(p.value_dim) + 31) / 32;
  for (int64_t i = blockIdx.x; i < *b.merges.count * p.kv_heads; i += gridDim.x) {
    const AttentionCudaItem item = b.merges.items[i / p.kv_heads];
    for (int w = static_cast<int>(threadIdx.x) / 32; w < item.rows * slices; w += kMergeWarps)
      merge_columns<T>(p, b, item, i % p.kv_heads, w / slices, w % slices * 32);
  }
}

template <class T>
void run_merges(CudaStream stream, const AttentionKernelParams& p, const AttentionCudaBatch& b) {
  constexpr int64_t kMostBlocks = 132 * 8;
  const int64_t blocks = b.merges.max_count * p.kv_heads;
  launch("paged_attention", stream, merge<T>,
         dim3(static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks)), kMergeWarps * 32,
         0, p, b);
}

}  // namespace

void paged_attention_cuda(CudaStream stream, const AttentionKernelParams& p,
                          const AttentionCudaBatch& batch) {
  if (batch.num_tokens == 0) return;
  if (!has_tensor_core_attention(p)) return run_plain_attention(stream, p, batch);
  is_quantised(p.kv_type) ? run_attention_codes(stream, p, batch)
                          : run_attention_bf16(stream, p, batch);
  run_merges<DeviceBf16>(stream, p, batch);
}

}  // namespace quire::ops
