#include "ops/gated_rms_norm/gated_rms_norm_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gated_rms_norm/gated_rms_norm_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because their code is per target too.
#include "ops/gated_activation/silu-inl.h"
#include "ops/rms_norm/rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

template <class T>
void normalise_heads(const GatedRmsNormParams& p, int64_t begin, int64_t end) {
  for (int64_t head = begin; head < end; ++head) {
    const T* x = static_cast<const T*>(p.x) + head * p.dim;
    const T* z =
        static_cast<const T*>(p.z) + head / p.heads * p.z_row + p.z_first + head % p.heads * p.dim;
    T* y = static_cast<T*>(p.y) + head * p.dim;
    const FloatVec scale = hn::Set(kFloats, inverse_rms(x, p.dim, p.eps));
    int64_t i = 0;
    for (; i + kLanes <= p.dim; i += kLanes) {
      const FloatVec normal = hn::Mul(load_floats(x + i), scale);
      const FloatVec scaled = hn::Mul(normal, load_floats(p.weight + i));
      store_floats(silu_mul(load_floats(z + i), scaled), y + i);
    }
    if (const int64_t n = p.dim - i; n > 0) {
      const FloatVec normal = hn::Mul(load_floats(x + i, n), scale);
      const FloatVec scaled = hn::Mul(normal, load_floats(p.weight + i, n));
      store_floats(silu_mul(load_floats(z + i, n), scaled), y + i, n);
    }
  }
}

void GatedRmsNorm(const GatedRmsNormParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return normalise_heads<float>(params, begin, end);
    case FloatType::kF16:
      return normalise_heads<F16>(params, begin, end);
    case FloatType::kBf16:
      return normalise_heads<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(GatedRmsNorm);
void gated_rms_norm_cpu(const GatedRmsNormParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GatedRmsNorm)(params, begin, end);
}
}  // namespace quire::ops
#endif
