#include "ops/scale/scale_cpu.h"

#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/scale/scale_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/cpu/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

HWY_INLINE FloatVec scaled(const ScaleParams& p, FloatVec x) {
  const FloatVec y = hn::Mul(x, hn::Set(kFloats, p.multiplier));
  if (p.softcap <= 0) return y;
  const FloatVec cap = hn::Set(kFloats, p.softcap);
  const FloatVec capped = hn::Mul(tanh_floats(hn::Div(y, cap)), cap);
  const FloatVec never = hn::Set(kFloats, -std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::Eq(y, never), y, capped);
}

template <class T>
void scale_elements(const ScaleParams& p, int64_t begin, int64_t end) {
  const T* x = static_cast<const T*>(p.x);
  T* y = static_cast<T*>(p.y);
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) store_floats(scaled(p, load_floats(x + i)), y + i);
  if (const int64_t n = end - i; n > 0) store_floats(scaled(p, load_floats(x + i, n)), y + i, n);
}

void Scale(const ScaleParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return scale_elements<float>(params, begin, end);
    case FloatType::kF16:
      return scale_elements<F16>(params, begin, end);
    case FloatType::kBf16:
      return scale_elements<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(Scale);
void scale_cpu(const ScaleParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Scale)(params, begin, end);
}
}  // namespace quire::ops
#endif
