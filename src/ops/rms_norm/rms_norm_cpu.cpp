#include "ops/rms_norm/rms_norm_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rms_norm/rms_norm_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/rms_norm/rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

template <class T>
void add_row(const T* x, const T* residual, T* sum, int64_t width) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    store_floats(hn::Add(load_floats(x + i), load_floats(residual + i)), sum + i);
  if (const int64_t n = width - i; n > 0)
    store_floats(hn::Add(load_floats(x + i, n), load_floats(residual + i, n)), sum + i, n);
}

template <class T>
void normalise_rows(const RmsNormParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * p.width;
    const T* x = static_cast<const T*>(p.x) + at;
    if (p.residual) {
      T* sum = static_cast<T*>(p.sum) + at;
      add_row(x, static_cast<const T*>(p.residual) + at, sum, p.width);
      x = sum;
    }
    scale_row(x, inverse_rms(x, p.width, p.eps), p.weight, static_cast<T*>(p.y) + at, p.width);
  }
}

void RmsNorm(const RmsNormParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return normalise_rows<float>(params, begin, end);
    case FloatType::kF16:
      return normalise_rows<F16>(params, begin, end);
    case FloatType::kBf16:
      return normalise_rows<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(RmsNorm);
void rms_norm_cpu(const RmsNormParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(RmsNorm)(params, begin, end);
}
}  // namespace quire::ops
#endif
