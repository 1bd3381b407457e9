#include "ops/moe_route/moe_route_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe_route/moe_route_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// Sorted insertion into the k best so far: experts come in ascending order, so that an equal one
// that comes later stays behind.
void choose(const MoeRouteParams& p, const float* logits, int32_t* experts, float* chosen) {
  int64_t count = 0;
  for (int64_t e = 0; e < p.num_experts; ++e) {
    const float logit = logits[e];
    if (count == p.top_k && !(logit > chosen[count - 1])) continue;
    int64_t at = count < p.top_k ? count++ : count - 1;
    for (; at > 0 && logit > chosen[at - 1]; --at) {
      chosen[at] = chosen[at - 1];
      experts[at] = experts[at - 1];
    }
    chosen[at] = logit;
    experts[at] = static_cast<int32_t>(e);
  }
}

HWY_INLINE FloatVec exp_below(FloatVec logits, float max) {
  return hn::Exp(kFloats, hn::Sub(logits, hn::Set(kFloats, max)));
}

// The sum of e^(logit - max): 16 partial sums whatever the vector length, added in order.
float exp_sum(const MoeRouteParams& p, const float* logits, float max) {
  HWY_ALIGN float sums[16] = {};
  int64_t e = 0;
  for (; e + 16 <= p.num_experts; e += 16)
    for (int64_t i = 0; i < 16; i += kLanes)
      hn::Store(
          hn::Add(hn::Load(kFloats, sums + i), exp_below(hn::LoadU(kFloats, logits + e + i), max)),
          kFloats, sums + i);
  for (int64_t i = 0; e + i < p.num_experts; i += kLanes) {
    const int64_t n = HWY_MIN(kLanes, p.num_experts - e - i);
    HWY_ALIGN float terms[kLanes];
    hn::Store(exp_below(load_floats(logits + e + i, n), max), kFloats, terms);
    for (int64_t lane = 0; lane < n; ++lane) sums[i + lane] += terms[lane];
  }
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

void MoeRoute(const MoeRouteParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* logits = p.logits + row * p.num_experts;
    int32_t* experts = p.experts + row * p.top_k;
    float* weights = p.weights + row * p.top_k;
    choose(p, logits, experts, weights);
    const float max = weights[0];
    float sum = 0;
    for (int64_t i = 0; i < p.top_k; i += kLanes) {
      const int64_t n = HWY_MIN(kLanes, p.top_k - i);
      store_floats(exp_below(load_floats(weights + i, n), max), weights + i, n);
      for (int64_t lane = 0; lane < n; ++lane) sum += weights[i + lane];
    }
    // p / sum(p of the chosen): the softmax's own sum cancels.
    if (!p.normalise) sum = exp_sum(p, logits, max);
    for (int64_t i = 0; i < p.top_k; ++i) weights[i] /= sum;
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(MoeRoute);
void moe_route_cpu(const MoeRouteParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(MoeRoute)(params, begin, end);
}
}  // namespace quire::ops
#endif
