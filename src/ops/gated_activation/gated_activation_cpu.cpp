#include "ops/gated_activation/gated_activation_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gated_activation/gated_activation_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/gated_activation/gated_activation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

using Up = GatedActivationParams::Up;

template <class T>
void activated_row(const GatedActivationParams& p, const T* gate, T* y) {
  const FloatVec one = hn::Set(kFloats, 1.0f);
  int64_t i = 0;
  for (; i + kLanes <= p.width; i += kLanes)
    store_floats(apply_gate(p.gate, load_floats(gate + i), one), y + i);
  if (const int64_t n = p.width - i; n > 0)
    store_floats(apply_gate(p.gate, load_floats(gate + i, n), one), y + i, n);
}

template <class T>
void gated_row(const GatedActivationParams& p, const T* gate, const T* up, T* y) {
  int64_t i = 0;
  for (; i + kLanes <= p.width; i += kLanes)
    store_floats(apply_gate(p.gate, load_floats(gate + i), load_floats(up + i)), y + i);
  if (const int64_t n = p.width - i; n > 0)
    store_floats(apply_gate(p.gate, load_floats(gate + i, n), load_floats(up + i, n)), y + i, n);
}

template <class T>
void rows(const GatedActivationParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* gate = static_cast<const T*>(p.gate_up) + row * p.gate_row();
    T* y = static_cast<T*>(p.y) + row * p.width;
    if (p.ups == Up::kOne) {
      activated_row(p, gate, y);
    } else if (p.ups == Up::kApart) {
      gated_row(p, gate, static_cast<const T*>(p.up) + row * p.up_row, y);
    } else {
      gated_row(p, gate, gate + p.width, y);
    }
  }
}

void GatedActivation(const GatedActivationParams& params, int64_t begin, int64_t end) {
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
HWY_EXPORT(GatedActivation);
void gated_activation_cpu(const GatedActivationParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GatedActivation)(params, begin, end);
}
}  // namespace quire::ops
#endif
