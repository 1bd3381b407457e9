#include "ops/moe_experts/moe_experts_cuda.h"

#include <algorithm>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"

namespace quire::ops {
namespace {

constexpr int kSortThreads = 1024, kMostExperts = static_cast<int>(kMaxMoeCudaExperts);
constexpr int kJoinThreads = 256, kMostChoices = static_cast<int>(kMaxMoeCudaChoices);

int64_t most_tiles(const MoeExpertsCudaParams& p) {
  const int64_t pairs = p.rows * p.top_k;
  return std::min(pairs, pairs / kLinearCudaTile + std::min(pairs, p.num_experts));
}

// The pieces of the scratch.
struct MoeScratch {
  int32_t* tokens;  // [pairs] token of each sorted pair
  int32_t* places;  // [pairs] where a pair went
  LinearCudaTile* tiles;
  int32_t* num_tiles;
  void* weighed;  // [pairs, hidden] of type, if inputs are weighed
  void* gated;    // [pairs, I] of type
  float* y;       // [pairs, hidden]
  size_t bytes;
};

MoeScratch scratch_of(const MoeExpertsCudaParams& p) {
  const int64_t pairs = p.rows * p.top_k;
  char* base = static_cast<char*>(p.scratch);
  size_t at = 0;
  const auto take = [&](int64_t bytes) {
    void* piece = base + at;
    at += static_cast<size_t>((bytes + 127) / 128 * 128);
    return piece;
  };
  MoeScratch s = {};
  s.tokens = static_cast<int32_t*>(take(pairs * 4));
  s.places = static_cast<int32_t*>(take(pairs * 4));
  s.tiles = static_cast<LinearCudaTile*>(
      take(most_tiles(p) * static_cast<int64_t>(sizeof(LinearCudaTile))));
  s.num_tiles = static_cast<int32_t*>(take(4));
  s.weighed = take(p.weigh_input ? pairs * p.hidden * float_type_bytes(p.type) : 0);
  s.gated = take(pairs * p.intermediate * float_type_bytes(p.type));
  s.y = static_cast<float*>(take(pairs * p.hidden * 4));
  s.bytes = at;
  return s;
}

// One block sorts the pairs by expert and cuts each expert's into tiles. Which place within its
// expert a pair gets is up to chance: no row's bits depend on it.
__global__ void __launch_bounds__(kSortThreads)
    hot_sort_pairs(const MoeExpertsCudaParams p, const MoeScratch s) {
  __shared__ int counts[kMostExperts], starts[kMostExperts];
  begin_dependent();
  const int experts = static_cast<int>(p.num_experts), pairs = static_cast<int>(p.rows * p.top_k);
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kSortThreads) counts[e] = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kSortThreads)
    atomicAdd(&counts[p.experts[i]], 1);
  __syncthreads();
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x), tile = static_cast<int>(kLinearCudaTile);
    int rows = 0, tiles = 0;  // of the experts before
    for (int first = 0; first < experts; first += 32) {
      const int e = first + lane, count = e < experts ? counts[e] : 0;
      int rows_to = count, tiles_to = (count + tile - 1) / tile;
#pragma unroll
      for (int shift = 1; shift < 32; shift *= 2) {
        const int more_rows = __shfl_up_sync(kWholeWarp, rows_to, shift);
        const int more_tiles = __shfl_up_sync(kWholeWarp, tiles_to, shift);
        if (lane >= shift) rows_to += more_rows, tiles_to += more_tiles;
      }
      const int start = rows + rows_to - count;
      if (e < experts) starts[e] = start;
      int at = tiles + tiles_to - (count + tile - 1) / tile;
      for (int row = 0; row < count; row += tile)
        s.tiles[at++] = {e, start + row, min(tile, count - row)};
      rows += __shfl_sync(kWholeWarp, rows_to, 31);
      tiles += __shfl_sync(kWholeWarp, tiles_to, 31);
    }
    if (lane == 0) *s.num_tiles = tiles;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < pairs; i += kSortThreads) {
    const int place = atomicAdd(&starts[p.experts[i]], 1);
    s.tokens[place] = i / static_cast<int>(p.top_k);
    s.places[i] = place;
  }
}

// A block for each pair: what goes into its expert.
template <class T>
__global__ void __launch_bounds__(kJoinThreads)
    hot_weigh(const MoeExpertsCudaParams p, const MoeScratch s) {
  begin_dependent();
  const int64_t pair = blockIdx.x;
  const float weight = p.weights[pair];
  const T* x = static_cast<const T*>(p.x) + pair / p.top_k * p.hidden;
  T* y = static_cast<T*>(s.weighed) + s.places[pair] * p.hidden;
  for (int64_t at = threadIdx.x; at < p.hidden; at += kJoinThreads)
    y[at] = narrow<T>(weight * widen(x[at]));
}

// A block for a token: the sum over its experts, ascending, and what joins it.
template <class T>
__global__ void __launch_bounds__(kJoinThreads)
    hot_join(const MoeExpertsCudaParams p, const MoeScratch s) {
  __shared__ int places[kMostChoices];
  __shared__ float weights[kMostChoices];
  begin_dependent();
  const int64_t token = blockIdx.x;
  const int choices = static_cast<int>(p.top_k);
  const int32_t* experts = p.experts + token * choices;
  if (const int i = static_cast<int>(threadIdx.x); i < choices) {
    int rank = 0;
    for (int j = 0; j < choices; ++j) rank += experts[j] < experts[i] ? 1 : 0;
    places[rank] = s.places[token * choices + i];
    weights[rank] = p.weigh_input ? 1.0f : p.weights[token * choices + i];
  }
  __syncthreads();
  const float gate = p.shared_logit != nullptr ? sigmoid(p.shared_logit[token]) : 1.0f;
  for (int64_t at = threadIdx.x; at < p.hidden; at += kJoinThreads) {
    float sum = 0;
    for (int i = 0; i < choices; ++i) sum = fmaf(weights[i], s.y[places[i] * p.hidden + at], sum);
    const int64_t index = token * p.hidden + at;
    if (p.shared != nullptr) sum = fmaf(gate, widen(static_cast<const T*>(p.shared)[index]), sum);
    if (p.residual != nullptr) sum += widen(static_cast<const T*>(p.residual)[index]);
    static_cast<T*>(p.y)[index] = narrow<T>(sum);
  }
}

}  // namespace

size_t moe_experts_cuda_scratch_bytes(const MoeExpertsCudaParams& p) { return scratch_of(p).bytes; }

const char* moe_experts_cuda(CudaStream stream, const MoeExpertsCudaParams& p) {
  if (p.rows == 0) return nullptr;
  if (p.num_experts > kMostExperts || p.top_k > kMostChoices)
    throw_from_op("moe_experts", "more experts than the kernel has room for");
  const MoeScratch s = scratch_of(p);
  launch("moe_experts", stream, hot_sort_pairs, dim3(1), kSortThreads, 0, p, s);
  if (p.weigh_input)
    with_float_type(p.type, [&](auto t) {
      launch("moe_experts", stream, hot_weigh<decltype(t)>,
             dim3(static_cast<unsigned>(p.rows * p.top_k)), kJoinThreads, 0, p, s);
    });
  LinearCudaParams linear = {.layout = p.gate_up,
                             .out_type = p.type,
                             .gate = p.gate,
                             .rows = p.rows * p.top_k,
                             .x = p.weigh_input ? s.weighed : p.x,
                             .y = s.gated};
  linear.tiles = s.tiles;
  linear.num_tiles = s.num_tiles;
  linear.max_tiles = most_tiles(p);
  linear.expert_weights = p.gate_up_weights;
  linear.expert_biases = p.gate_up_biases;
  linear.x_rows = p.weigh_input ? nullptr : s.tokens;
  const char* first = linear_cuda(stream, linear);
  linear.layout = p.down;
  linear.out_type = FloatType::kF32;
  linear.x = s.gated;
  linear.y = s.y;
  linear.expert_weights = p.down_weights;
  linear.expert_biases = p.down_biases;
  linear.x_rows = nullptr;
  const char* second = linear_cuda(stream, linear);
  with_float_type(p.type, [&](auto t) {
    launch("moe_experts", stream, hot_join<decltype(t)>, dim3(static_cast<unsigned>(p.rows)),
           kJoinThreads, 0, p, s);
  });
  return joined_name(first, second);
}

}  // namespace quire::ops
