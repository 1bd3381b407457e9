#include "ops/layer_norm/layer_norm_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/layer_norm/layer_norm_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/rms_norm/rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// `add(sum, i, n)` is the sum of a lane with that of the n columns from i on, which may be fewer
// than there are lanes.
template <class Add>
HWY_INLINE float sum_columns(int64_t width, const Add& add) {
  FloatVec parts[kParts];
  for (auto& part : parts) part = hn::Zero(kFloats);
  int64_t i = 0;
  for (; i + kSumLanes <= width; i += kSumLanes)
    for (int64_t p = 0; p < kParts; ++p) parts[p] = add(parts[p], i + p * kLanes, kLanes);
  for (int64_t p = 0; i < width; ++p, i += kLanes)
    parts[p] = add(parts[p], i, width - i < kLanes ? width - i : kLanes);
  return fold(parts);
}

template <class T>
HWY_INLINE FloatVec load_columns(const T* x, int64_t n) {
  return n == kLanes ? load_floats(x) : load_floats(x, n);
}

template <class T>
void normalise_row(const LayerNormParams& p, const T* x, T* y) {
  const auto width = static_cast<float>(p.width);
  const float mean =
      sum_columns(p.width, [x](FloatVec sum, int64_t i, int64_t n)
                               HWY_ATTR { return hn::Add(sum, load_columns(x + i, n)); }) /
      width;
  const FloatVec centre = hn::Set(kFloats, mean);
  const float squares =
      sum_columns(p.width, [x, centre](FloatVec sum, int64_t i, int64_t n) HWY_ATTR {
        FloatVec v = hn::Sub(load_columns(x + i, n), centre);
        // Lanes behind the row's end hold 0, not the mean.
        if (n < kLanes) v = hn::IfThenElseZero(hn::FirstN(kFloats, static_cast<size_t>(n)), v);
        return hn::MulAdd(v, v, sum);
      });
  const FloatVec scale = hn::Set(kFloats, 1.0f / std::sqrt(squares / width + p.eps));
  for (int64_t i = 0; i < p.width; i += kLanes) {
    const int64_t n = p.width - i < kLanes ? p.width - i : kLanes;
    const FloatVec normal = hn::Mul(hn::Sub(load_columns(x + i, n), centre), scale);
    FloatVec v = hn::Mul(normal, load_columns(p.weight + i, n));
    if (p.bias) v = hn::Add(v, load_columns(p.bias + i, n));
    n == kLanes ? store_floats(v, y + i) : store_floats(v, y + i, n);
  }
}

template <class T>
void normalise_rows(const LayerNormParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    normalise_row(p, static_cast<const T*>(p.x) + row * p.width,
                  static_cast<T*>(p.y) + row * p.width);
}

void LayerNorm(const LayerNormParams& params, int64_t begin, int64_t end) {
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
HWY_EXPORT(LayerNorm);
void layer_norm_cpu(const LayerNormParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(LayerNorm)(params, begin, end);
}
}  // namespace quire::ops
#endif
