#include "ops/norm_columns/norm_columns_cpu.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm_columns/norm_columns_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/rms_norm/rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

template <class T>
void norm_rows(const NormColumnsParams& p, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = static_cast<const T*>(p.x) + row * p.row;
    T* y = static_cast<T*>(p.y) + row * p.row;
    int64_t at = 0;
    for (int64_t i = 0; i < p.num_parts; ++i) {
      const NormColumnsParams::Part& part = p.parts[i];
      std::memcpy(y + at, x + at, (part.first - at) * sizeof(T));
      at = part.first;
      for (int64_t n = 0; n < part.count; ++n, at += part.width)
        scale_row(x + at, inverse_rms(x + at, part.width, p.eps), part.weight, y + at, part.width);
    }
    std::memcpy(y + at, x + at, (p.row - at) * sizeof(T));
  }
}

void NormColumns(const NormColumnsParams& params, int64_t begin, int64_t end) {
  switch (params.type) {
    case FloatType::kF32:
      return norm_rows<float>(params, begin, end);
    case FloatType::kF16:
      return norm_rows<F16>(params, begin, end);
    case FloatType::kBf16:
      return norm_rows<Bf16>(params, begin, end);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(NormColumns);
void norm_columns_cpu(const NormColumnsParams& params, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(NormColumns)(params, begin, end);
}
}  // namespace quire::ops
#endif
