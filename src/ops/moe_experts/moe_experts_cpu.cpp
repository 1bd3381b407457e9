#include "ops/moe_experts/moe_experts_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe_experts/moe_experts_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

void Scatter(const MoeScatterParams& p, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float* y = p.y + i * p.width;
    float* sum = p.sum + p.tokens[i] * p.width;
    const FloatVec weight = hn::Set(kFloats, p.weights[i]);
    int64_t at = 0;
    for (; at + kLanes <= p.width; at += kLanes)
      hn::StoreU(hn::MulAdd(weight, hn::LoadU(kFloats, y + at), hn::LoadU(kFloats, sum + at)),
                 kFloats, sum + at);
    if (const int64_t n = p.width - at; n > 0)
      store_floats(hn::MulAdd(weight, load_floats(y + at, n), load_floats(sum + at, n)), sum + at,
                   n);
  }
}

template <class T>
void weigh_rows(const MoeWeighParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(p.x) + p.tokens[row] * p.width;
    T* y = static_cast<T*>(p.y) + row * p.width;
    const FloatVec weight = hn::Set(kFloats, p.weights[row]);
    int64_t at = 0;
    for (; at + kLanes <= p.width; at += kLanes)
      store_floats(hn::Mul(weight, load_floats(x + at)), y + at);
    if (const int64_t n = p.width - at; n > 0)
      store_floats(hn::Mul(weight, load_floats(x + at, n)), y + at, n);
  }
}

void Weigh(const MoeWeighParams& p, int64_t begin, int64_t end) {
  switch (p.type) {
    case FloatType::kF32:
      return weigh_rows<float>(p, begin, end);
    case FloatType::kF16:
      return weigh_rows<F16>(p, begin, end);
    case FloatType::kBf16:
      return weigh_rows<Bf16>(p, begin, end);
  }
}

float sigmoid(float logit) {
  const FloatVec one = hn::Set(kFloats, 1.0f);
  // As in silu-inl.h: past the overflow, but where Highway's Exp still is infinite.
  const FloatVec negated = hn::Min(hn::Set(kFloats, -logit), hn::Set(kFloats, 100.0f));
  return hn::GetLane(hn::Div(one, hn::Add(one, hn::Exp(kFloats, negated))));
}

template <class T>
void finish_rows(const MoeFinishParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* sum = p.sum + row * p.width;
    const T* shared = p.shared ? static_cast<const T*>(p.shared) + row * p.width : nullptr;
    const T* residual = p.residual ? static_cast<const T*>(p.residual) + row * p.width : nullptr;
    T* y = static_cast<T*>(p.y) + row * p.width;
    const FloatVec gate = hn::Set(kFloats, shared && p.logit ? sigmoid(p.logit[row]) : 1.0f);
    for (int64_t at = 0; at < p.width; at += kLanes) {
      const int64_t n = HWY_MIN(kLanes, p.width - at);
      const auto load = [n](const auto* from) {
        return n == kLanes ? load_floats(from) : load_floats(from, n);
      };
      FloatVec value = load(sum + at);
      if (shared) value = hn::MulAdd(gate, load(shared + at), value);
      if (residual) value = hn::Add(value, load(residual + at));
      n == kLanes ? store_floats(value, y + at) : store_floats(value, y + at, n);
    }
  }
}

void Finish(const MoeFinishParams& p, int64_t begin, int64_t end) {
  switch (p.type) {
    case FloatType::kF32:
      return finish_rows<float>(p, begin, end);
    case FloatType::kF16:
      return finish_rows<F16>(p, begin, end);
    case FloatType::kBf16:
      return finish_rows<Bf16>(p, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(Scatter);
HWY_EXPORT(Weigh);
HWY_EXPORT(Finish);
void moe_scatter_cpu(const MoeScatterParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Scatter)(params, begin, end);
}
void moe_weigh_cpu(const MoeWeighParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Weigh)(params, begin, end);
}
void moe_finish_cpu(const MoeFinishParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Finish)(params, begin, end);
}
}  // namespace quire::ops
#endif
