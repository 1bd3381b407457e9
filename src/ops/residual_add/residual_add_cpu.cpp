#include "ops/residual_add/residual_add_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/residual_add/residual_add_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/rms_norm/rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// y = residual + y * multiplier, where y holds the normed row or `from` is another.
template <class T>
HWY_INLINE void add_row(const ResidualAddParams& p, const T* from, const T* residual, T* y) {
  const FloatVec multiplier = hn::Set(kFloats, p.multiplier);
  // A product and a sum, each rounded: a fused one would differ where there is none.
  int64_t i = 0;
  for (; i + kLanes <= p.width; i += kLanes) {
    const FloatVec added = hn::Mul(load_floats(from + i), multiplier);
    store_floats(hn::Add(load_floats(residual + i), added), y + i);
  }
  if (const int64_t n = p.width - i; n > 0) {
    const FloatVec added = hn::Mul(load_floats(from + i, n), multiplier);
    store_floats(hn::Add(load_floats(residual + i, n), added), y + i, n);
  }
}

template <class T>
void add_rows(const ResidualAddParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * p.width;
    const T *x = static_cast<const T*>(p.x) + at, *from = x;
    T* y = static_cast<T*>(p.y) + at;
    if (p.norm_weight) {
      scale_row(x, inverse_rms(x, p.width, p.eps), p.norm_weight, y, p.width);
      from = y;
    }
    add_row(p, from, static_cast<const T*>(p.residual) + at, y);
  }
}

void ResidualAdd(const ResidualAddParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return add_rows<float>(params, begin, end);
    case FloatType::kF16:
      return add_rows<F16>(params, begin, end);
    case FloatType::kBf16:
      return add_rows<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(ResidualAdd);
void residual_add_cpu(const ResidualAddParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(ResidualAdd)(params, begin, end);
}
}  // namespace quire::ops
#endif
