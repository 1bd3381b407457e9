#include "ops/moe_route/moe_route_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe_route/moe_route_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr float kMinusInfinity = -__builtin_inff();

// The `most` best so far, best first. Whoever offers does so in ascending order of what it offers,
// so that an equal one that comes later stays behind.
struct Best {
  int64_t most;
  int32_t* indices;
  float* keys;
  int64_t count = 0;

  HWY_INLINE void offer(int64_t index, float key) {
    if (count == most && !(key > keys[count - 1])) return;
    int64_t at = count < most ? count++ : count - 1;
    for (; at > 0 && key > keys[at - 1]; --at) {
      keys[at] = keys[at - 1];
      indices[at] = indices[at - 1];
    }
    keys[at] = key;
    indices[at] = static_cast<int32_t>(index);
  }
};

// y = f(x), n elements.
template <class F>
HWY_INLINE void map(const float* x, float* y, int64_t n, const F& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_floats(f(load_floats(x + i)), y + i);
  if (i < n) store_floats(f(load_floats(x + i, n - i)), y + i, n - i);
}

HWY_INLINE FloatVec exp_below(FloatVec logits, float max) {
  return hn::Exp(kFloats, hn::Sub(logits, hn::Set(kFloats, max)));
}

HWY_INLINE FloatVec sigmoid(FloatVec x) {
  const FloatVec one = hn::Set(kFloats, 1.0f);
  // As in silu_mul-inl.h: past the overflow, but where Highway's Exp still is infinite.
  const FloatVec negated = hn::Min(hn::Neg(x), hn::Set(kFloats, 100.0f));
  return hn::Div(one, hn::Add(one, hn::Exp(kFloats, negated)));
}

// The sum of e^(logit - max): 16 partial sums whatever the vector length, added in order.
float exp_sum(const float* logits, int64_t count, float max) {
  HWY_ALIGN float sums[16] = {};
  int64_t e = 0;
  for (; e + 16 <= count; e += 16)
    for (int64_t i = 0; i < 16; i += kLanes)
      hn::Store(
          hn::Add(hn::Load(kFloats, sums + i), exp_below(hn::LoadU(kFloats, logits + e + i), max)),
          kFloats, sums + i);
  for (int64_t i = 0; e + i < count; i += kLanes) {
    const int64_t n = HWY_MIN(kLanes, count - e - i);
    HWY_ALIGN float terms[kLanes];
    hn::Store(exp_below(load_floats(logits + e + i, n), max), kFloats, terms);
    for (int64_t lane = 0; lane < n; ++lane) sums[i + lane] += terms[lane];
  }
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

bool has_nan(const float* logits, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const FloatVec x =
        count - i >= kLanes ? load_floats(logits + i) : load_floats(logits + i, count - i);
    if (!hn::AllTrue(kFloats, hn::Eq(x, x))) return true;
  }
  return false;
}

float max_of(const float* x, int64_t count) {
  float max = x[0];
  for (int64_t i = 1; i < count; ++i) max = x[i] > max ? x[i] : max;
  return max;
}

// Softmax whose choice is by logit: nothing is computed of experts that are not chosen, but for the
// sum.
void plain_row(const MoeRouteParams& p, const float* logits, int32_t* experts, float* weights) {
  const int64_t k = p.options.top_k;
  Best best = {.most = k, .indices = experts, .keys = weights};
  for (int64_t e = 0; e < p.num_experts; ++e) best.offer(e, logits[e]);
  const float max = weights[0];
  map(weights, weights, k, [max](FloatVec x) { return exp_below(x, max); });
  float sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += weights[i];
  // p / sum(p of the chosen): the softmax's own sum cancels.
  if (!p.options.normalise) sum = exp_sum(logits, p.num_experts, max);
  for (int64_t i = 0; i < k; ++i) weights[i] /= sum;
}

// Phi-3.5-MoE's two experts.
void sparse_mixer_row(const MoeRouteParams& p, const float* logits, float* near, int32_t* experts,
                      float* weights) {
  int64_t taken = -1;
  for (int64_t i = 0; i < 2; ++i) {
    int64_t best = -1;
    for (int64_t e = 0; e < p.num_experts; ++e)
      if (e != taken && (best < 0 || logits[e] > logits[best])) best = e;
    const float max = logits[best];
    for (int64_t e = 0; e < p.num_experts; ++e) {
      const float size = logits[e] < 0 ? -logits[e] : logits[e];
      const bool far = (max - logits[e]) / HWY_MAX(size, max) > 2.0f * p.options.jitter;
      near[e] = far || e == taken ? kMinusInfinity : logits[e];
    }
    experts[i] = static_cast<int32_t>(best);
    weights[i] = 1.0f / exp_sum(near, p.num_experts, max);
    taken = best;
  }
}

// How good a group is.
float group_value(const MoeRouteParams& p, const float* keys, int64_t size) {
  if (!p.options.groups_by_two) return max_of(keys, size);
  float first = HWY_MAX(keys[0], keys[1]), second = HWY_MIN(keys[0], keys[1]);
  for (int64_t i = 2; i < size; ++i) {
    second = HWY_MAX(second, HWY_MIN(first, keys[i]));
    first = HWY_MAX(first, keys[i]);
  }
  return first + second;
}

// The experts of the best groups. `room` is for 2 E floats.
void choose_in_groups(const MoeRouteParams& p, const float* keys, float* room, Best& best) {
  const int64_t groups = p.options.groups, size = p.num_experts / groups;
  float* const values = room;
  float* const is_chosen = room + groups;
  for (int64_t g = 0; g < groups; ++g) {
    values[g] = group_value(p, keys + g * size, size);
    is_chosen[g] = 0;
  }
  for (int64_t i = 0; i < p.options.chosen_groups; ++i) {
    int64_t at = -1;
    for (int64_t g = 0; g < groups; ++g)
      if (is_chosen[g] == 0 && (at < 0 || values[g] > values[at])) at = g;
    is_chosen[at] = 1;
  }
  for (int64_t e = 0; e < p.num_experts; ++e)
    if (is_chosen[e / size] != 0) best.offer(e, keys[e]);
}

// The score of every expert, and the choice by them. `room` is for 4 E floats.
void scored_row(const MoeRouteParams& p, const float* logits, float* room, int32_t* experts,
                float* weights) {
  const int64_t count = p.num_experts, k = p.options.top_k;
  float *const scores = room, *const corrected = room + count;
  if (p.options.score == MoeScore::kSigmoid) {
    map(logits, scores, count, [](FloatVec x) { return sigmoid(x); });
  } else {
    const float max = max_of(logits, count);
    const FloatVec sum = hn::Set(kFloats, exp_sum(logits, count, max));
    map(logits, scores, count, [&](FloatVec x) { return hn::Div(exp_below(x, max), sum); });
  }
  const float* keys = p.options.groups_by_two ? scores : logits;
  if (p.correction) {
    for (int64_t e = 0; e < count; ++e) corrected[e] = scores[e] + p.correction[e];
    keys = corrected;
  }
  Best best = {.most = k, .indices = experts, .keys = weights};
  if (p.options.groups > 1) {
    choose_in_groups(p, keys, room + 2 * count, best);
  } else {
    for (int64_t e = 0; e < count; ++e) best.offer(e, keys[e]);
  }
  float sum = 0;
  for (int64_t i = 0; i < k; ++i) sum += weights[i] = scores[experts[i]];
  if (!p.options.normalise) return;
  sum = HWY_MAX(sum + p.options.sum_offset, p.options.least_sum);
  for (int64_t i = 0; i < k; ++i) weights[i] /= sum;
}

bool is_plain(const MoeRouteParams& p) {
  return p.options.score == MoeScore::kSoftmax && !p.correction && p.options.groups == 1 &&
         p.options.sum_offset == 0 && p.options.least_sum == 0;
}

// `room` is for 5 E floats.
void route_row(const MoeRouteParams& p, const float* logits, float* room, int32_t* experts,
               float* weights) {
  if (p.options.softcap > 0) {
    const FloatVec cap = hn::Set(kFloats, p.options.softcap);
    map(logits, room, p.num_experts,
        [cap](FloatVec x) { return hn::Mul(cap, hn::Tanh(kFloats, hn::Div(x, cap))); });
    logits = room;
    room += p.num_experts;
  }
  if (p.options.score == MoeScore::kSparseMixer) {
    sparse_mixer_row(p, logits, room, experts, weights);
  } else if (is_plain(p)) {
    plain_row(p, logits, experts, weights);
  } else {
    scored_row(p, logits, room, experts, weights);
  }
  for (int64_t i = 0; i < p.options.top_k; ++i) {
    weights[i] *= p.options.scale;
    if (p.expert_scale) weights[i] *= p.expert_scale[experts[i]];
  }
}

void MoeRoute(const MoeRouteParams& p, int64_t begin, int64_t end, float* scratch) {
  for (int64_t row = begin; row < end; ++row) {
    const float* logits = p.logits + row * p.num_experts;
    int32_t* experts = p.experts + row * p.options.top_k;
    float* weights = p.weights + row * p.options.top_k;
    if (has_nan(logits, p.num_experts)) {
      for (int64_t i = 0; i < p.options.top_k; ++i) {
        experts[i] = static_cast<int32_t>(i);
        weights[i] = __builtin_nanf("");
      }
    } else {
      route_row(p, logits, scratch, experts, weights);
    }
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(MoeRoute);
void moe_route_cpu(const MoeRouteParams& params, int64_t begin, int64_t end, float* scratch) {
  HWY_DYNAMIC_DISPATCH(MoeRoute)(params, begin, end, scratch);
}
}  // namespace quire::ops
#endif
