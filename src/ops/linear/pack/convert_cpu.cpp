#include "ops/linear/pack/convert_cpu.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/pack/convert_cpu.cpp"
#include "ops/cpu/highway.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

template <class From, class To>
void convert(const void* from, void* to, int64_t n) {
  // Through aligned buffers, which the compiler keeps in registers where it can.
  constexpr int64_t kBlock = 64;
  From source[kBlock];
  To result[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = HWY_MIN(kBlock, n - i);
    std::memcpy(source, static_cast<const From*>(from) + i, count * sizeof(From));
    for (int64_t j = 0; j < kBlock; j += kLanes) store_floats(load_floats(source + j), result + j);
    std::memcpy(static_cast<To*>(to) + i, result, count * sizeof(To));
  }
}

template <class From>
void convert_from(const void* from, void* to, FloatType to_type, int64_t n) {
  switch (to_type) {
    case FloatType::kF32:
      return convert<From, float>(from, to, n);
    case FloatType::kF16:
      return convert<From, F16>(from, to, n);
    case FloatType::kBf16:
      return convert<From, Bf16>(from, to, n);
  }
}

void Convert(const void* from, FloatType from_type, void* to, FloatType to_type, int64_t n) {
  switch (from_type) {
    case FloatType::kF32:
      return convert_from<float>(from, to, to_type, n);
    case FloatType::kF16:
      return convert_from<F16>(from, to, to_type, n);
    case FloatType::kBf16:
      return convert_from<Bf16>(from, to, to_type, n);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(Convert);
void convert_cpu(const void* from, FloatType from_type, void* to, FloatType to_type, int64_t n) {
  if (from_type == to_type) {
    std::memcpy(to, from, n * float_type_bytes(to_type));
  } else {
    HWY_DYNAMIC_DISPATCH(Convert)(from, from_type, to, to_type, n);
  }
}
}  // namespace quire::ops
#endif
