#include "ops/activation/activation_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/activation/activation_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/gated_activation/gated_activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

template <class T>
void rows(const ActivationParams& p, int64_t begin, int64_t end) {
  const FloatVec one = hn::Set(kFloats, 1.0f);
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(p.x) + row * p.width;
    T* y = static_cast<T*>(p.y) + row * p.width;
    int64_t i = 0;
    for (; i + kLanes <= p.width; i += kLanes)
      store_floats(apply_gate(p.gate, load_floats(x + i), one), y + i);
    if (const int64_t n = p.width - i; n > 0)
      store_floats(apply_gate(p.gate, load_floats(x + i, n), one), y + i, n);
  }
}

void Activation(const ActivationParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return rows<float>(params, begin, end);
    case FloatType::kF16:
      return rows<F16>(params, begin, end);
    case FloatType::kBf16:
      return rows<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(Activation);
void activation_cpu(const ActivationParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Activation)(params, begin, end);
}
}  // namespace quire::ops
#endif
