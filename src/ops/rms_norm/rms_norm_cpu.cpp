#include "ops/rms_norm/rms_norm_cpu.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rms_norm/rms_norm_cpu.cpp"
#include "ops/highway.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// The sum is kept in 64 virtual lanes (lane = column mod 64) whatever the vector length, and they
// are folded in halves: the order of additions, and so the bits, do not depend on it. 64 also hides
// the latency of four 16-lane multiply-adds.
constexpr int64_t kSumLanes = 64;
constexpr int64_t kParts = kSumLanes / kLanes;

HWY_INLINE float fold(FloatVec (&parts)[kParts]) {
  for (int64_t half = kParts / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) parts[i] = hn::Add(parts[i], parts[i + half]);
  HWY_ALIGN float lanes[kLanes];
  hn::Store(parts[0], kFloats, lanes);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

template <class T>
float sum_of_squares(const T* x, int64_t width) {
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
void add_row(const T* x, const T* residual, T* sum, int64_t width) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    store_floats(hn::Add(load_floats(x + i), load_floats(residual + i)), sum + i);
  if (const int64_t n = width - i; n > 0)
    store_floats(hn::Add(load_floats(x + i, n), load_floats(residual + i, n)), sum + i, n);
}

template <class T>
void scale_row(const T* x, float scale, const float* weight, T* y, int64_t width) {
  const FloatVec s = hn::Set(kFloats, scale);
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const FloatVec normal = round_floats<T>(hn::Mul(load_floats(x + i), s));
    store_floats(hn::Mul(normal, load_floats(weight + i)), y + i);
  }
  if (const int64_t n = width - i; n > 0) {
    const FloatVec normal = round_floats<T>(hn::Mul(load_floats(x + i, n), s));
    store_floats(hn::Mul(normal, load_floats(weight + i, n)), y + i, n);
  }
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
    const float mean = sum_of_squares(x, p.width) / static_cast<float>(p.width);
    const float scale = 1.0f / std::sqrt(mean + p.eps);
    scale_row(x, scale, p.weight, static_cast<T*>(p.y) + at, p.width);
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
