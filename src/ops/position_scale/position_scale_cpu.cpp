#include "ops/position_scale/position_scale_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/position_scale/position_scale_cpu.cpp"
#include "ops/cpu/highway.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

template <class T>
void scale_rows(const PositionScaleParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(p.x) + row * p.width;
    T* y = static_cast<T*>(p.y) + row * p.width;
    const FloatVec factor = hn::Set(kFloats, p.factors[p.positions[row]]);
    int64_t i = 0;
    for (; i + kLanes <= p.width; i += kLanes)
      store_floats(hn::Mul(load_floats(x + i), factor), y + i);
    if (const int64_t n = p.width - i; n > 0)
      store_floats(hn::Mul(load_floats(x + i, n), factor), y + i, n);
  }
}

void PositionScale(const PositionScaleParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return scale_rows<float>(params, begin, end);
    case FloatType::kF16:
      return scale_rows<F16>(params, begin, end);
    case FloatType::kBf16:
      return scale_rows<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(PositionScale);
void position_scale_cpu(const PositionScaleParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(PositionScale)(params, begin, end);
}
}  // namespace quire::ops
#endif
