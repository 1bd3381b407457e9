#include "ops/sigmoid_gate/sigmoid_gate_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sigmoid_gate/sigmoid_gate_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/gated_activation/silu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

HWY_INLINE FloatVec gated(FloatVec x, FloatVec gate) {
  return hn::Div(x, hn::Add(hn::Set(kFloats, 1.0f), exp_negated(gate)));
}

template <class T>
void gate_rows(const SigmoidGateParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(p.x) + row * p.width;
    const T* gate = static_cast<const T*>(p.gate) + row * p.gate_row + p.first;
    T* y = static_cast<T*>(p.y) + row * p.width;
    int64_t i = 0;
    for (; i + kLanes <= p.width; i += kLanes)
      store_floats(gated(load_floats(x + i), load_floats(gate + i)), y + i);
    if (const int64_t n = p.width - i; n > 0)
      store_floats(gated(load_floats(x + i, n), load_floats(gate + i, n)), y + i, n);
  }
}

void SigmoidGate(const SigmoidGateParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return gate_rows<float>(params, begin, end);
    case FloatType::kF16:
      return gate_rows<F16>(params, begin, end);
    case FloatType::kBf16:
      return gate_rows<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(SigmoidGate);
void sigmoid_gate_cpu(const SigmoidGateParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(SigmoidGate)(params, begin, end);
}
}  // namespace quire::ops
#endif
