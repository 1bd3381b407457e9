#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

// How a pool stores keys and values, for kernels: no MLX. Codes of kInt8 and kFp8 stand for code *
// scale, with one float32 scale for each token and kv head.
enum class KvType : uint8_t { kF32, kF16, kBf16, kInt8, kFp8 };

// What the operator asks for: the model's dtype, or one byte for each element.
enum class KvStorage : uint8_t { kAuto, kInt8, kFp8 };

constexpr KvType kv_type_of(FloatType type) {
  return type == FloatType::kF32 ? KvType::kF32
                                 : (type == FloatType::kF16 ? KvType::kF16 : KvType::kBf16);
}
constexpr bool is_quantised(KvType type) { return type == KvType::kInt8 || type == KvType::kFp8; }

// -127..127; the largest of a row has 127.
struct I8 {
  int8_t value;
};
// FP8-E4M3 without infinities: sign, 4 bits of exponent (bias 7), 3 of mantissa; 0x7F and 0xFF are
// NaN, the largest value is 448.
struct F8 {
  uint8_t bits;
};

inline constexpr float kMaxI8 = 127.0f, kMaxF8 = 448.0f;
// Rows with no element as large as this become zeros: their scale's inverse would overflow.
inline constexpr float kMinQuantised = 1e-30f;

inline float to_float(I8 x) { return static_cast<float>(x.value); }
inline float to_float(F8 x) {
  const uint32_t size = x.bits & 0x7Fu, sign = static_cast<uint32_t>(x.bits & 0x80u) << 24;
  if (size == 0x7F) return bits_to_float(sign | 0x7FC00000u);
  if (size < 8) {
    const float value = static_cast<float>(size) * 0x1p-9f;
    return sign != 0 ? -value : value;
  }
  return bits_to_float(sign | ((size << 20) + (120u << 23)));
}

}  // namespace quire::ops
