// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Reads the layout of
// quantised_layout.h.
#include <cstring>

#include "ops/linear/quantised_layout.h"

#if defined(QUIRE_OPS_AFFINE_INTEGERS_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_AFFINE_INTEGERS_TARGET_
#undef QUIRE_OPS_AFFINE_INTEGERS_TARGET_
#else
#define QUIRE_OPS_AFFINE_INTEGERS_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// The scale and bias of one group of one row.
HWY_INLINE void load_scale(const QuantisedLayout& layout, const uint8_t* block, int64_t group,
                           int64_t row, float& scale, float& bias) {
  if (layout.zeros != ZeroPoints::kNone) {
    const int64_t index = group * QuantisedLayout::kPanel + row;
    uint16_t bits;
    std::memcpy(&bits, block + index * sizeof(bits), sizeof(bits));
    scale = layout.scale_type == FloatType::kBf16 ? to_float(Bf16{bits}) : to_float(F16{bits});
    int zero = layout.least_zero;
    if (layout.zeros == ZeroPoints::kBytes) zero += block[layout.zero_bytes_at() + index];
    bias = -static_cast<float>(zero) * scale;
    return;
  }
  if (layout.scale_type == FloatType::kF32) {
    const uint8_t* at = block + (group * 2 * QuantisedLayout::kPanel + row) * sizeof(float);
    std::memcpy(&scale, at, sizeof(float));
    std::memcpy(&bias, at + QuantisedLayout::kPanel * sizeof(float), sizeof(float));
    return;
  }
  uint32_t both;
  std::memcpy(&both, block + (group * QuantisedLayout::kPanel + row) * sizeof(both), sizeof(both));
  if (layout.scale_type == FloatType::kBf16) {
    scale = bits_to_float(both & 0xFFFF0000u);
    bias = bits_to_float(both << 16);
  } else {
    scale = to_float(F16{static_cast<uint16_t>(both >> 16)});
    bias = to_float(F16{static_cast<uint16_t>(both)});
  }
}

HWY_INLINE FloatVec load_bytes(const uint8_t* from) {
  const hn::Rebind<uint8_t, FloatTag> bytes;
  return hn::ConvertTo(kFloats, hn::PromoteTo(IntTag(), hn::LoadU(bytes, from)));
}

// kLanes integers from k on, of one row's part of a block.
HWY_INLINE FloatVec load_integers(int bits, const uint8_t* values, int64_t row, int64_t k) {
  const IntTag di;
  if (bits == 4) {
    const auto* words = reinterpret_cast<const uint16_t*>(values + row * 64) + k % 32;
    const auto wide = hn::PromoteTo(UintTag(), hn::LoadU(HalfBitsTag(), words));
    const auto nibble =
        hn::And(hn::ShiftRightSame(wide, static_cast<int>(k / 32 * 4)), hn::Set(UintTag(), 15u));
    return hn::ConvertTo(kFloats, hn::BitCast(di, nibble));
  }
  return load_bytes(values + (k / 64 * QuantisedLayout::kPanel + row) * 64 + k % 64);
}

// The codes of one row of a block of turned codes, one to a byte.
HWY_INLINE void copy_turned_row(int bits, const uint8_t* values, int64_t row,
                                uint8_t* HWY_RESTRICT out) {
  const uint8_t* from = values + row / 4 * 16 + row % 4 * (bits == 8 ? 1 : 2);
  if (bits == 8) {
    for (int64_t k = 0; k < QuantisedLayout::kBlock; k += 4, from += 64)
      for (int64_t i = 0; i < 4; ++i) out[k + i] = from[i % 2 * 8 + i / 2 * 4];
    return;
  }
  for (int64_t k = 0; k < QuantisedLayout::kBlock; k += 8, from += 64) {
    for (int64_t i = 0; i < 8; ++i) {
      const uint8_t byte = from[i / 4 * 8 + 1 - i % 2];
      out[k + i] = i / 2 % 2 ? byte >> 4 : byte & 15;
    }
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
