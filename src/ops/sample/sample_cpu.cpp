#include "ops/sample/sample_cpu.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sample/sample_cpu.cpp"
#include "ops/cpu/highway.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// Up to 8 lanes; kSumLanes of them, folded in halves, make every sum independent of the width.
using DoubleTag = hn::CappedTag<double, 8>;
constexpr int64_t kDoubleLanes = hn::MaxLanes(DoubleTag());
constexpr int64_t kSumLanes = 16;
constexpr float kMinusInf = -__builtin_inff();

// Block b of the row, or a copy of it filled up with -inf if it is short.
HWY_INLINE const float* block_of(const float* x, int64_t size, int64_t b, float* padded) {
  const int64_t begin = b * kSampleBlock, n = size - begin;
  if (n >= kSampleBlock) return x + begin;
  for (int64_t i = 0; i < kSampleBlock; ++i) padded[i] = i < n ? x[begin + i] : kMinusInf;
  return padded;
}

// canonical_logit.
HWY_INLINE FloatVec load_logits(const float* p) {
  const FloatVec raw = hn::LoadU(kFloats, p);
  const FloatVec v = hn::IfThenElse(hn::Eq(raw, raw), raw, hn::Set(kFloats, kMinusInf));
  return hn::Min(v, hn::Set(kFloats, FLT_MAX));
}

// e^z to 2 ulp for z <= 0; 1 for greater z (only +inf less a clamped maximum), 0 for NaN and below
// -87. z = n ln 2 + r, a polynomial in r (Cephes expf), the exponent by integer arithmetic: adding
// 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits.
HWY_INLINE FloatVec exp_nonpositive(FloatVec z) {
  const FloatVec lowest = hn::Set(kFloats, -87.0f), magic = hn::Set(kFloats, 12582912.0f);
  const auto in_range = hn::Ge(z, lowest);
  const FloatVec x = hn::Min(hn::IfThenElse(in_range, z, lowest), hn::Zero(kFloats));
  const FloatVec biased = hn::Add(hn::Mul(x, hn::Set(kFloats, 1.44269504088896341f)), magic);
  const FloatVec n = hn::Sub(biased, magic);
  FloatVec r = hn::Sub(x, hn::Mul(n, hn::Set(kFloats, 0.693359375f)));
  r = hn::Sub(r, hn::Mul(n, hn::Set(kFloats, -2.12194440e-4f)));
  FloatVec p = hn::Set(kFloats, 1.9875691500e-4f);
  p = hn::Add(hn::Mul(p, r), hn::Set(kFloats, 1.3981999507e-3f));
  p = hn::Add(hn::Mul(p, r), hn::Set(kFloats, 8.3334519073e-3f));
  p = hn::Add(hn::Mul(p, r), hn::Set(kFloats, 4.1665795894e-2f));
  p = hn::Add(hn::Mul(p, r), hn::Set(kFloats, 1.6666665459e-1f));
  p = hn::Add(hn::Mul(p, r), hn::Set(kFloats, 5.0000001201e-1f));
  p = hn::Add(hn::Add(hn::Mul(hn::Mul(p, r), r), r), hn::Set(kFloats, 1.0f));
  const IntTag di;
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, biased));  // n, at the exponent's place
  const FloatVec y = hn::BitCast(kFloats, hn::Add(hn::BitCast(di, p), exponent));
  return hn::IfThenElseZero(in_range, y);
}

// Needs no canonical logits: exp_nonpositive takes what comes of NaN and infinities.
HWY_INLINE void block_weights(const float* block, FloatVec max, FloatVec scale, float* out) {
  for (int64_t i = 0; i < kSampleBlock; i += kLanes) {
    const FloatVec z = hn::Mul(hn::Sub(hn::LoadU(kFloats, block + i), max), scale);
    hn::StoreU(exp_nonpositive(z), kFloats, out + i);
  }
}

HWY_INLINE double sum_block(const float* weights) {
  constexpr int64_t kParts = kSumLanes / kDoubleLanes;
  const DoubleTag dd;
  const hn::Rebind<float, DoubleTag> narrow;
  hn::Vec<DoubleTag> parts[kParts];
  for (auto& part : parts) part = hn::Zero(dd);
  for (int64_t i = 0; i < kSampleBlock; i += kSumLanes)
    for (int64_t p = 0; p < kParts; ++p) {
      const auto w = hn::LoadU(narrow, weights + i + p * kDoubleLanes);
      parts[p] = hn::Add(parts[p], hn::PromoteTo(dd, w));
    }
  double lanes[kSumLanes];
  for (int64_t p = 0; p < kParts; ++p) hn::StoreU(parts[p], dd, lanes + p * kDoubleLanes);
  for (int64_t half = kSumLanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

void BlockMaxima(const float* x, int64_t size, float* maxima) {
  float padded[kSampleBlock];
  for (int64_t b = 0; b < num_sample_blocks(size); ++b) {
    const float* block = block_of(x, size, b, padded);
    FloatVec max = load_logits(block);
    for (int64_t i = kLanes; i < kSampleBlock; i += kLanes)
      max = hn::Max(max, load_logits(block + i));
    maxima[b] = hn::GetLane(hn::MaxOfLanes(kFloats, max));
  }
}

void BlockMasses(const float* x, int64_t size, float max, float scale, double* masses) {
  float padded[kSampleBlock], weights[kSampleBlock];
  const FloatVec m = hn::Set(kFloats, max), t = hn::Set(kFloats, scale);
  for (int64_t b = 0; b < num_sample_blocks(size); ++b) {
    block_weights(block_of(x, size, b, padded), m, t, weights);
    masses[b] = sum_block(weights);
  }
}

void SoftmaxWeights(const float* x, int64_t size, float max, float scale, float* weights) {
  float padded[kSampleBlock], last[kSampleBlock];
  const FloatVec m = hn::Set(kFloats, max), t = hn::Set(kFloats, scale);
  for (int64_t b = 0; b < num_sample_blocks(size); ++b) {
    const int64_t begin = b * kSampleBlock, n = size - begin;
    const bool whole = n >= kSampleBlock;
    block_weights(block_of(x, size, b, padded), m, t, whole ? weights + begin : last);
    for (int64_t i = 0; !whole && i < n; ++i) weights[begin + i] = last[i];
  }
}

int64_t CollectAtLeast(const float* x, int64_t size, const float* maxima, float threshold,
                       int32_t* ids, float* values) {
  float padded[kSampleBlock];
  threshold = threshold < -FLT_MAX ? -FLT_MAX : threshold;  // never -inf, never the padding
  const FloatVec t = hn::Set(kFloats, threshold);
  const IntTag di;
  int64_t count = 0;
  for (int64_t b = 0; b < num_sample_blocks(size); ++b) {
    if (!(maxima[b] >= threshold)) continue;
    const float* block = block_of(x, size, b, padded);
    for (int64_t i = 0; i < kSampleBlock; i += kLanes) {
      const FloatVec v = load_logits(block + i);
      const auto keep = hn::Ge(v, t);
      if (hn::AllFalse(kFloats, keep)) continue;
      const auto id = hn::Iota(di, static_cast<int32_t>(b * kSampleBlock + i));
      // Whole vectors: a compressing store is slow microcode on AMD Zen.
      hn::StoreU(hn::Compress(id, hn::RebindMask(di, keep)), di, ids + count);
      hn::StoreU(hn::Compress(v, keep), kFloats, values + count);
      count += static_cast<int64_t>(hn::CountTrue(kFloats, keep));
    }
  }
  return count;
}

int64_t CountGreater(const float* x, int64_t size, const float* maxima, float threshold) {
  float padded[kSampleBlock];
  const FloatVec t = hn::Set(kFloats, threshold);
  int64_t count = 0;
  for (int64_t b = 0; b < num_sample_blocks(size); ++b) {
    if (!(maxima[b] > threshold)) continue;
    const float* block = block_of(x, size, b, padded);
    for (int64_t i = 0; i < kSampleBlock; i += kLanes)
      count += static_cast<int64_t>(hn::CountTrue(kFloats, hn::Gt(load_logits(block + i), t)));
  }
  return count;
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(BlockMaxima);
HWY_EXPORT(BlockMasses);
HWY_EXPORT(SoftmaxWeights);
HWY_EXPORT(CollectAtLeast);
HWY_EXPORT(CountGreater);

void block_maxima(const float* x, int64_t size, float* maxima) {
  HWY_DYNAMIC_DISPATCH(BlockMaxima)(x, size, maxima);
}
void block_masses(const float* x, int64_t size, float max, float scale, double* masses) {
  HWY_DYNAMIC_DISPATCH(BlockMasses)(x, size, max, scale, masses);
}
void softmax_weights(const float* x, int64_t size, float max, float scale, float* weights) {
  HWY_DYNAMIC_DISPATCH(SoftmaxWeights)(x, size, max, scale, weights);
}
int64_t collect_at_least(const float* x, int64_t size, const float* maxima, float threshold,
                         int32_t* ids, float* values) {
  return HWY_DYNAMIC_DISPATCH(CollectAtLeast)(x, size, maxima, threshold, ids, values);
}
int64_t count_greater(const float* x, int64_t size, const float* maxima, float threshold) {
  return HWY_DYNAMIC_DISPATCH(CountGreater)(x, size, maxima, threshold);
}
}  // namespace quire::ops
#endif
