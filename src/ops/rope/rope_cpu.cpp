#include "ops/rope/rope_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rope/rope_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/rope/rope-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

template <class T>
void rotate_tokens(const RopeKernelParams& p, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const float* cos = p.cos_sin + p.positions[t] * p.rotary_dim;
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t at = (t * p.heads + h) * p.head_dim;
      const T* x = static_cast<const T*>(p.x) + at;
      T* y = static_cast<T*>(p.y) + at;
      rotate_head(x, cos, p.rotary_dim / 2, y);
      for (int64_t i = p.rotary_dim; i < p.head_dim; ++i) y[i] = x[i];
    }
  }
}

void Rope(const RopeKernelParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return rotate_tokens<float>(params, begin, end);
    case FloatType::kF16:
      return rotate_tokens<F16>(params, begin, end);
    case FloatType::kBf16:
      return rotate_tokens<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(Rope);
void rope_cpu(const RopeKernelParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(Rope)(params, begin, end);
}
}  // namespace quire::ops
#endif
