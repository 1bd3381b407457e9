#include "ops/cuda/launch.cuh"
#include "ops/paged_attention/attention_launch.cuh"
#include "ops/paged_attention/attention_softmax.cuh"

// A block for each query row, in float32: keys in chunks of 256 as everywhere, a thread for each
// score, then for each column of the values.
namespace quire::ops {
namespace {

constexpr int kThreads = 128, kChunk = static_cast<int>(kAttentionChunk);
constexpr int kMostColumns = (static_cast<int>(kMaxHeadDim) + kThreads - 1) / kThreads;

struct Shared {
  float query[kMaxHeadDim], probabilities[kChunk], of_warps[kThreads / 32];
  int64_t slots[kChunk];
};

template <class Combine>
__device__ float block_reduce(float x, float* of_warps, Combine combine) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = combine(x, __shfl_xor_sync(kWholeWarp, x, mask));
  __syncthreads();
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
  __syncthreads();
  x = of_warps[0];
#pragma unroll
  for (int i = 1; i < kThreads / 32; ++i) x = combine(x, of_warps[i]);
  return x;
}

__device__ int64_t sequence_of(const AttentionCudaBatch& b, int64_t token) {
  int64_t low = 0, high = b.num_sequences;  // the last whose first row is not beyond the token
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (b.cu_seqlens[middle] <= token ? low : high) = middle;
  }
  return low;
}

template <class Pool>
struct PlainRow {
  const AttentionKernelParams& p;
  AttentionRow row;
  int64_t kv_head;
  Shared& shared;

  __device__ float score(int key, int i) const {
    if (key < row.first || key >= row.end) return -INFINITY;
    const int64_t slot = shared.slots[i] * p.kv_heads + kv_head;
    const Pool* k = static_cast<const Pool*>(p.k) + slot * p.key_dim;
    float dot = 0;
    for (int64_t d = 0; d < p.key_dim; ++d) dot = fmaf(shared.query[d], widen(k[d]), dot);
    if (p.k_scale != nullptr) dot *= p.k_scale[slot];
    return attention_score(p, row, key, dot);
  }

  // The chunk of keys from `first` on: its maximum, sum and values.
  __device__ void chunk(int first, float& m, float& l, float (&values)[kMostColumns]) const {
    float s[kChunk / kThreads];
    float peak = -INFINITY;
#pragma unroll
    for (int i = 0; i < kChunk / kThreads; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * kThreads;
      s[i] = score(first + at, at);
      peak = fmaxf(peak, s[i]);
    }
    m = block_reduce(peak, shared.of_warps, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kChunk / kThreads; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * kThreads;
      const float probability =
          s[i] == -INFINITY ? 0.0f : attention_probability(s[i], m, p.exponent_scale);
      sum += probability;
      const bool scaled = p.v_scale != nullptr && s[i] != -INFINITY;
      shared.probabilities[at] =
          scaled ? probability * p.v_scale[shared.slots[at] * p.kv_heads + kv_head] : probability;
    }
    l = block_reduce(sum, shared.of_warps, [](float a, float b) { return a + b; });
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kMostColumns; ++j) {
      values[j] = 0;
      const int64_t d = threadIdx.x + j * kThreads;
      if (d >= p.value_dim) continue;
      const int begin = max(0, row.first - first), end = min(kChunk, row.end - first);
      for (int i = begin; i < end; ++i) {
        const int64_t slot = shared.slots[i] * p.kv_heads + kv_head;
        const float v = widen(static_cast<const Pool*>(p.v)[slot * value_pitch_of(p) + d]);
        values[j] = fmaf(shared.probabilities[i], v, values[j]);
      }
    }
  }
};

template <class T, class Pool>
__global__ void __launch_bounds__(kThreads)
    attend_plain(const AttentionKernelParams p, const AttentionCudaBatch b) {
  __shared__ Shared shared;
  begin_dependent();
  const int64_t token = blockIdx.x, head = blockIdx.y, sequence = sequence_of(b, token);
  const int64_t at = token * p.heads + head;
  const int context = b.seq_lens[sequence];
  const int32_t* blocks = b.blocks + b.block_offsets[sequence];
  const PlainRow<Pool> row = {p, attention_row(p, sequence, head, b.positions[token], context),
                              head / (p.heads / p.kv_heads), shared};
  for (int64_t d = threadIdx.x; d < p.key_dim; d += kThreads)
    shared.query[d] = widen(static_cast<const T*>(p.q)[at * p.key_dim + d]);
  AttentionTotal total = attention_begin(p, head);
  float totals[kMostColumns] = {};
  for (int first = row.row.first / kChunk * kChunk; first < row.row.end; first += kChunk) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kChunk; i += kThreads)
      shared.slots[i] = first + i < context ? key_slot(blocks, p.block_size, first + i) : 0;
    __syncthreads();
    float m, l, values[kMostColumns];
    row.chunk(first, m, l, values);
    const JoinFactors f = attention_join(total, log2_maximum(m, p.exponent_scale), l);
#pragma unroll
    for (int j = 0; j < kMostColumns; ++j) totals[j] = join_value(f, totals[j], values[j]);
  }
#pragma unroll
  for (int j = 0; j < kMostColumns; ++j)
    if (const int64_t d = threadIdx.x + j * kThreads; d < p.value_dim)
      static_cast<T*>(p.out)[at * p.value_dim + d] =
          narrow<T>(attention_divide(totals[j], total.l));
  if (p.lse != nullptr && threadIdx.x == 0)
    p.lse[head * p.lse_stride + token] = attention_log_sum(total);
}

template <class Pool>
void run(CudaStream stream, const AttentionKernelParams& p, const AttentionCudaBatch& b) {
  with_float_type(p.q_type, [&](auto t) {
    launch("paged_attention", stream, attend_plain<decltype(t), Pool>,
           dim3(static_cast<unsigned>(b.num_tokens), static_cast<unsigned>(p.heads)), kThreads, 0,
           p, b);
  });
}

}  // namespace

void run_plain_attention(CudaStream stream, const AttentionKernelParams& p,
                         const AttentionCudaBatch& b) {
  switch (p.kv_type) {
    case KvType::kF32:
      return run<float>(stream, p, b);
    case KvType::kF16:
      return run<DeviceF16>(stream, p, b);
    case KvType::kBf16:
      return run<DeviceBf16>(stream, p, b);
    case KvType::kInt8:
      return run<I8>(stream, p, b);
    case KvType::kFp8:
      return run<F8>(stream, p, b);
  }
}

}  // namespace quire::ops
