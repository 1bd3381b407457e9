#include "ops/moe_route/moe_route_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"

namespace quire::ops {
namespace {

constexpr int kWarps = 4;

// A key that orders floats, which are no NaN, as unsigned integers; -0 is as good as 0. 0: taken.
__device__ inline uint32_t order_of(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
// The float of a key.
__device__ inline float float_of(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

// The warp's best of its keys, ties to the lower expert.
__device__ inline int best_expert(const uint32_t* keys, int experts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t best = 0;
  int at = experts;
  for (int e = lane; e < experts; e += 32)
    if (keys[e] > best) best = keys[e], at = e;
  const uint32_t most = __reduce_max_sync(kWholeWarp, best);
  return static_cast<int>(
      __reduce_min_sync(kWholeWarp, static_cast<uint32_t>(best == most ? at : experts)));
}

// The result of a row with a NaN.
__device__ inline void give_nan(const MoeRouteParams& p, int64_t row) {
  const int k = static_cast<int>(p.options.top_k);
  for (int i = static_cast<int>(threadIdx.x) % 32; i < k; i += 32) {
    p.experts[row * k + i] = i;
    p.weights[row * k + i] = __int_as_float(0x7FC00000);
  }
}

// What becomes of a chosen expert's weight at the end.
__device__ inline float scaled(const MoeRouteParams& p, int expert, float weight) {
  weight *= p.options.scale;
  return p.expert_scale != nullptr ? weight * p.expert_scale[expert] : weight;
}

// A warp for each row: the best expert, k times. Softmax whose choice is by logit: nothing is
// computed of experts that are not chosen, but for the sum.
__global__ void __launch_bounds__(kWarps * 32) hot_route(const MoeRouteParams p, int64_t rows) {
  extern __shared__ uint32_t all_keys[];
  begin_dependent();
  const int lane = static_cast<int>(threadIdx.x) % 32, experts = static_cast<int>(p.num_experts);
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= rows) return;
  uint32_t* keys = all_keys + threadIdx.x / 32 * experts;
  const float* logits = p.logits + row * experts;
  bool bad = false;
  for (int e = lane; e < experts; e += 32) {
    keys[e] = order_of(logits[e]);
    bad |= isnan(logits[e]);
  }
  if (__any_sync(kWholeWarp, bad)) return give_nan(p, row);
  __syncwarp();
  float max = 0, sum = 0;
  for (int i = 0; i < p.options.top_k; ++i) {
    const int e = best_expert(keys, experts);
    if (i == 0) max = logits[e];
    sum += expf(logits[e] - max);
    if (lane == 0) {
      p.experts[row * p.options.top_k + i] = e;
      keys[e] = 0;
    }
    __syncwarp();
  }
  if (!p.options.normalise) {
    sum = 0;
    for (int e = lane; e < experts; e += 32) sum += expf(logits[e] - max);
    sum = warp_sum(sum);
  }
  for (int i = lane; i < p.options.top_k; i += 32) {
    const int e = p.experts[row * p.options.top_k + i];
    p.weights[row * p.options.top_k + i] = scaled(p, e, expf(logits[e] - max) / sum);
  }
}

// A row of the other routers, by one warp.
struct ScoredRow {
  const MoeRouteParams& p;
  int64_t row;
  // In shared memory. [E] logits, capped if they are to be, and later scores; [E] keys that experts
  // are chosen by; [groups] keys of groups.
  float* scores;
  uint32_t *keys, *group_keys;

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ int experts() const { return static_cast<int>(p.num_experts); }
  __device__ void give(int i, int expert, float weight) const {
    p.experts[row * p.options.top_k + i] = expert;
    p.weights[row * p.options.top_k + i] = scaled(p, expert, weight);
  }

  // Whether there is no NaN.
  __device__ bool load() const {
    bool bad = false;
    for (int e = lane(); e < experts(); e += 32) {
      float logit = p.logits[row * p.num_experts + e];
      bad |= isnan(logit);
      if (p.options.softcap > 0) logit = p.options.softcap * tanhf(logit / p.options.softcap);
      scores[e] = logit;
      keys[e] = order_of(logit);
    }
    return !__any_sync(kWholeWarp, bad);
  }

  // The scores and keys of all experts. A lane reads and writes its own only.
  __device__ void score() const {
    const bool is_sigmoid = p.options.score == MoeScore::kSigmoid;
    float max = -INFINITY, sum = 0;
    for (int e = lane(); e < experts(); e += 32) max = fmaxf(max, scores[e]);
    max = warp_max(max);
    if (!is_sigmoid) {
      for (int e = lane(); e < experts(); e += 32) sum += expf(scores[e] - max);
      sum = warp_sum(sum);
    }
    for (int e = lane(); e < experts(); e += 32) {
      const float logit = scores[e];
      const float score = is_sigmoid ? sigmoid(logit) : expf(logit - max) / sum;
      scores[e] = score;
      if (p.correction != nullptr)
        keys[e] = order_of(score + p.correction[e]);
      else if (p.options.groups_by_two)
        keys[e] = order_of(score);
    }
    __syncwarp();
  }

  __device__ uint32_t key_of_group(int group, int size) const {
    uint32_t first = 0, second = 0;  // less than any key
    for (int e = group * size; e < (group + 1) * size; ++e) {
      second = max(second, min(first, keys[e]));
      first = max(first, keys[e]);
    }
    return p.options.groups_by_two ? order_of(float_of(first) + float_of(second)) : first;
  }

  // Takes the experts of all but the best groups.
  __device__ void choose_groups() const {
    const int groups = static_cast<int>(p.options.groups), size = experts() / groups;
    for (int g = lane(); g < groups; g += 32) group_keys[g] = key_of_group(g, size);
    __syncwarp();
    for (int i = 0; i < p.options.chosen_groups; ++i) {
      const int best = best_expert(group_keys, groups);
      __syncwarp();
      if (lane() == 0) group_keys[best] = 0;
      __syncwarp();
    }
    for (int e = lane(); e < experts(); e += 32)
      if (group_keys[e / size] != 0) keys[e] = 0;
    __syncwarp();
  }

  // The best expert, k times, by the warp; each counts its score.
  __device__ void choose() const {
    const int k = static_cast<int>(p.options.top_k);
    float sum = 0;
    for (int i = 0; i < k; ++i) {
      const int e = best_expert(keys, experts());
      sum += scores[e];
      __syncwarp();
      if (lane() == 0) {
        p.experts[row * k + i] = e;
        keys[e] = 0;
      }
      __syncwarp();
    }
    sum = fmaxf(sum + p.options.sum_offset, p.options.least_sum);
    for (int i = lane(); i < k; i += 32) {
      const int e = p.experts[row * k + i];
      give(i, e, p.options.normalise ? scores[e] / sum : scores[e]);
    }
  }

  // Phi-3.5-MoE's two experts.
  __device__ void mix() const {
    int taken = -1;
    for (int i = 0; i < 2; ++i) {
      const int best = best_expert(keys, experts());
      const float max = scores[best];
      float sum = 0;
      for (int e = lane(); e < experts(); e += 32) {
        const bool far = (max - scores[e]) / fmaxf(fabsf(scores[e]), max) > 2.0f * p.options.jitter;
        if (!far && e != taken) sum += expf(scores[e] - max);
      }
      sum = warp_sum(sum);
      if (lane() == 0) {
        give(i, best, 1.0f / sum);
        keys[best] = 0;
      }
      __syncwarp();
      taken = best;
    }
  }
};

size_t scored_bytes(const MoeRouteParams& p) {
  return static_cast<size_t>(2 * p.num_experts + p.options.groups) * sizeof(uint32_t);
}

// A warp, which is a block, for each row.
__global__ void __launch_bounds__(32) hot_route_by_score(const MoeRouteParams p) {
  extern __shared__ uint32_t room[];
  begin_dependent();
  const ScoredRow scored = {p, blockIdx.x, reinterpret_cast<float*>(room), room + p.num_experts,
                            room + 2 * p.num_experts};
  if (!scored.load()) return give_nan(p, blockIdx.x);
  __syncwarp();
  if (p.options.score == MoeScore::kSparseMixer) return scored.mix();
  scored.score();
  if (p.options.groups > 1) scored.choose_groups();
  scored.choose();
}

bool is_plain(const MoeRouteParams& p) {
  const MoeRouteOptions& o = p.options;
  return o.score == MoeScore::kSoftmax && o.softcap <= 0 && p.correction == nullptr &&
         o.groups == 1 && o.sum_offset == 0 && o.least_sum == 0;
}

}  // namespace

void moe_route_cuda(CudaStream stream, const MoeRouteParams& p, int64_t rows) {
  if (!is_plain(p))
    return launch("moe_route", stream, hot_route_by_score, dim3(static_cast<unsigned>(rows)), 32,
                  scored_bytes(p), p);
  launch("moe_route", stream, hot_route, dim3(blocks_for(rows, kWarps)), kWarps * 32,
         static_cast<size_t>(kWarps * p.num_experts) * sizeof(uint32_t), p, rows);
}

}  // namespace quire::ops
