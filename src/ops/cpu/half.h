#pragma once
#include <cstdint>
#include <cstring>

namespace quire::ops {

// Storage types of the two 16-bit floats, for kernels: no arithmetic, no MLX. Same bits as MLX's.
struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

// The dtype of a kernel's arrays, without MLX.
enum class FloatType : uint8_t { kF32, kF16, kBf16 };
constexpr int64_t float_type_bytes(FloatType type) { return type == FloatType::kF32 ? 4 : 2; }

inline float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline uint32_t float_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float to_float(float x) { return x; }
inline float to_float(Bf16 x) { return bits_to_float(static_cast<uint32_t>(x.bits) << 16); }

// By integer arithmetic, so that denormals survive whatever the MXCSR says.
inline float to_float(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  uint32_t exponent = (x.bits >> 10) & 0x1Fu;
  uint32_t mantissa = x.bits & 0x3FFu;
  if (exponent == 0x1F) return bits_to_float(sign | 0x7F800000u | mantissa << 13);
  if (exponent == 0) {
    if (mantissa == 0) return bits_to_float(sign);
    for (exponent = 1; (mantissa & 0x400u) == 0; --exponent) mantissa <<= 1;  // wraps below zero
    mantissa &= 0x3FFu;
  }
  return bits_to_float(sign | (exponent + (127 - 15)) << 23 | mantissa << 13);
}

// Conversions from float round to nearest, ties to even; NaN stays NaN (quiet).
template <class T>
T from_float(float x);

template <>
inline float from_float<float>(float x) {
  return x;
}

template <>
inline Bf16 from_float<Bf16>(float x) {
  const uint32_t bits = float_to_bits(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16)};
}

// Part of its callers: files for one instruction set leave no symbol that others might be linked
// to.
template <>
__attribute__((always_inline)) inline F16 from_float<F16>(float x) {
  const uint32_t bits = float_to_bits(x);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return {static_cast<uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu))};
  }
  if (magnitude >= 0x47800000u) return {static_cast<uint16_t>(sign | 0x7C00u)};  // >= 65536
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent < -25) return {static_cast<uint16_t>(sign)};
  // Below 2^-14 the result is a denormal: a multiple of 2^-24. `drop` low bits are rounded away.
  const bool denormal = exponent < -14;
  const int drop = denormal ? -1 - exponent : 13;
  const uint32_t mantissa =
      denormal ? (magnitude & 0x7FFFFFu) | 0x800000u : magnitude - ((127u - 15u) << 23);
  const uint32_t kept = mantissa >> drop;
  const uint32_t rest = mantissa & ((1u << drop) - 1);
  const uint32_t half = 1u << (drop - 1);
  const uint32_t up = rest > half || (rest == half && (kept & 1u)) ? 1u : 0u;
  return {static_cast<uint16_t>(sign | (kept + up))};  // a carry into the exponent is right
}

inline float round_through(float x, FloatType type) {
  switch (type) {
    case FloatType::kBf16:
      return to_float(from_float<Bf16>(x));
    case FloatType::kF16:
      return to_float(from_float<F16>(x));
    case FloatType::kF32:
      break;
  }
  return x;
}

}  // namespace quire::ops
