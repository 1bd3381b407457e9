#include "ops/linear/int8/int8_rows_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/int8/int8_rows_cpu.cpp"
#include "ops/cpu/highway.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr uint32_t kInfinity = 0x7F800000u;

// The largest |x|, compared as integers: a NaN is larger than all.
template <class T>
HWY_INLINE uint32_t largest(const T* x, int64_t count) {
  const UintTag du;
  auto most = hn::Zero(du);
  for (int64_t i = 0; i < count; i += kLanes)
    most = hn::Max(most, hn::BitCast(du, hn::Abs(load_floats(x + i))));
  return hn::GetLane(hn::MaxOfLanes(du, most));
}

template <class T>
void quantize_row(const T* x, int64_t k, int64_t group, const Int8Row& out) {
  const hn::Rebind<int8_t, FloatTag> bytes;
  const uint32_t of_row = out.per_token ? largest(x, k) : 0;
  for (int64_t begin = 0, g = 0; begin < k; begin += group, ++g) {
    const uint32_t bits = out.per_token ? of_row : largest(x + begin, group);
    const float most = bits_to_float(bits);
    const bool finite = bits < kInfinity;
    const float inverse = finite && most >= 0x1p-100f ? 127.0f / most : 0.0f;
    auto sum = hn::Zero(IntTag());
    for (int64_t i = begin; i < begin + group; i += kLanes) {
      const FloatVec scaled = hn::Mul(load_floats(x + i), hn::Set(kFloats, inverse));
      const auto q = finite ? hn::NearestInt(scaled) : hn::Zero(IntTag());
      sum = hn::Add(sum, q);
      hn::StoreU(hn::DemoteTo(bytes, q), bytes, out.q + i);
    }
    const float scale = !finite ? bits_to_float(0x7FC00000u) : inverse == 0 ? 0.0f : most / 127.0f;
    out.scale[g] = scale;
    const int32_t total = hn::GetLane(hn::SumOfLanes(IntTag(), sum));
    if (out.sum) out.sum[g] = scale * static_cast<float>(total);
    if (out.start) out.start[g] = -out.zero * total;
  }
}

void QuantizeRow(FloatType type, const void* x, int64_t k, int64_t group, const Int8Row& out) {
  switch (type) {
    case FloatType::kF32:
      return quantize_row(static_cast<const float*>(x), k, group, out);
    case FloatType::kF16:
      return quantize_row(static_cast<const F16*>(x), k, group, out);
    case FloatType::kBf16:
      return quantize_row(static_cast<const Bf16*>(x), k, group, out);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(QuantizeRow);
void quantize_row_int8_cpu(FloatType type, const void* x, int64_t k, int64_t group,
                           const Int8Row& out) {
  HWY_DYNAMIC_DISPATCH(QuantizeRow)(type, x, k, group, out);
}
}  // namespace quire::ops
#endif
