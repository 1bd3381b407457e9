// The arithmetic of a row's RMS norm; read once per target, by *_cpu.cpp only.
#include <cmath>

#include "ops/cpu/highway.h"

#if defined(QUIRE_OPS_RMS_NORM_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_RMS_NORM_
#undef QUIRE_OPS_RMS_NORM_
#else
#define QUIRE_OPS_RMS_NORM_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// The sum is kept in 64 virtual lanes (lane = column mod 64) whatever the vector length, and they
// are folded in halves: the order of additions, and so the bits, do not depend on it. 64 also hides
// the latency of four 16-lane multiply-adds.
constexpr int64_t kSumLanes = 64;
constexpr int64_t kParts = kSumLanes / kLanes;

// Lane i and lane i + half, until one is left.
template <class D>
HWY_INLINE float fold_lanes(D, hn::Vec<D> v) {
#if HWY_TARGET != HWY_SCALAR  // which has one lane, and no halves
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return fold_lanes(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  return hn::GetLane(v);
}

HWY_INLINE float fold(FloatVec (&parts)[kParts]) {
  for (int64_t half = kParts / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) parts[i] = hn::Add(parts[i], parts[i + half]);
  return fold_lanes(kFloats, parts[0]);
}

template <class T>
HWY_INLINE float sum_of_squares(const T* x, int64_t width) {
  FloatVec parts[kParts];
  for (auto& part : parts) part = hn::Zero(kFloats);
  int64_t i = 0;
  for (; i + kSumLanes <= width; i += kSumLanes) {
    for (int64_t p = 0; p < kParts; ++p) {
      const FloatVec v = load_floats(x + i + p * kLanes);
      parts[p] = hn::MulAdd(v, v, parts[p]);
    }
  }
  for (int64_t p = 0; i < width; ++p, i += kLanes) {
    const FloatVec v = i + kLanes <= width ? load_floats(x + i) : load_floats(x + i, width - i);
    parts[p] = hn::MulAdd(v, v, parts[p]);
  }
  return fold(parts);
}

template <class T>
HWY_INLINE void scale_row(const T* x, float scale, const float* weight, T* y, int64_t width) {
  const FloatVec s = hn::Set(kFloats, scale);
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const FloatVec normal = hn::Mul(load_floats(x + i), s);
    store_floats(hn::Mul(normal, load_floats(weight + i)), y + i);
  }
  if (const int64_t n = width - i; n > 0) {
    const FloatVec normal = hn::Mul(load_floats(x + i, n), s);
    store_floats(hn::Mul(normal, load_floats(weight + i, n)), y + i, n);
  }
}

// 1 / sqrt(mean(x^2) + eps).
template <class T>
HWY_INLINE float inverse_rms(const T* x, int64_t width, float eps) {
  const float mean = sum_of_squares(x, width) / static_cast<float>(width);
  return 1.0f / std::sqrt(mean + eps);
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
