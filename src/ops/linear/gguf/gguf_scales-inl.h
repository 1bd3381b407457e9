// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Scales and biases of
// GGUF's formats with the rows of a panel as lanes, read from a block of gguf_layout.h.
#include "ops/linear/gguf/gguf_layout.h"

#if defined(QUIRE_OPS_GGUF_SCALES_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_GGUF_SCALES_TARGET_
#undef QUIRE_OPS_GGUF_SCALES_TARGET_
#else
#define QUIRE_OPS_GGUF_SCALES_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

using GgufWords = hn::Vec<UintTag>;

// kLanes of 16 rows from row `lane` on.
HWY_INLINE FloatVec gguf_halves(const uint8_t* halves, int64_t lane) {
  return load_floats(reinterpret_cast<const F16*>(halves) + lane);
}
template <class Word>
HWY_INLINE GgufWords gguf_words(const uint8_t* words, int64_t lane) {
  const auto* from = reinterpret_cast<const Word*>(words) + lane;
  if constexpr (sizeof(Word) == 4) {
    return hn::LoadU(UintTag(), from);
  } else {
    return hn::PromoteTo(UintTag(), hn::LoadU(hn::Rebind<Word, FloatTag>(), from));
  }
}

// Some bits of each word.
HWY_INLINE GgufWords gguf_bits(GgufWords words, int64_t from, uint32_t mask) {
  return hn::And(hn::ShiftRightSame(words, static_cast<int>(from)), hn::Set(UintTag(), mask));
}
HWY_INLINE FloatVec gguf_floats(GgufWords v) {
  return hn::ConvertTo(kFloats, hn::BitCast(IntTag(), v));
}
// The float of low + 16 * high - 32.
HWY_INLINE FloatVec gguf_six_bits(GgufWords low, GgufWords high) {
  return hn::Sub(gguf_floats(hn::Or(low, hn::ShiftLeft<4>(high))), hn::Set(kFloats, 32.0f));
}

// Of group `group` of a block: value = scale * code + bias. Products are exact in float32.
HWY_INLINE void load_gguf_scales(GgufFormat format, const uint8_t* block, int64_t group,
                                 int64_t lane, FloatVec& scale, FloatVec& bias) {
  const auto zero_at = [&](float code) { bias = hn::Mul(scale, hn::Set(kFloats, -code)); };
  switch (format) {
    case GgufFormat::kQ5_1:
      scale = gguf_halves(block + 32 * group, lane);
      bias = gguf_halves(block + 128 + 32 * group, lane);
      return;
    case GgufFormat::kQ2_K: {
      const GgufWords bytes = gguf_words<uint8_t>(block + 64 + 16 * group, lane);
      scale = hn::Mul(gguf_halves(block, lane), gguf_floats(gguf_bits(bytes, 0, 15)));
      bias = hn::Neg(hn::Mul(gguf_halves(block + 32, lane), gguf_floats(gguf_bits(bytes, 4, 15))));
      return;
    }
    case GgufFormat::kQ3_K: {
      const GgufWords low = gguf_bits(gguf_words<uint32_t>(block + 32, lane), 4 * group, 15);
      const GgufWords high = gguf_bits(gguf_words<uint16_t>(block + 96, lane), 2 * group, 3);
      scale = hn::Mul(gguf_halves(block, lane), gguf_six_bits(low, high));
      return zero_at(4);
    }
    case GgufFormat::kQ4_K:
    case GgufFormat::kQ5_K: {
      const GgufWords both = gguf_bits(gguf_words<uint32_t>(block + 64, lane), 8 * group, 255);
      const GgufWords low = gguf_bits(gguf_words<uint16_t>(block + 128, lane), 4 * group, 15);
      const GgufWords min = hn::Or(low, hn::ShiftLeft<4>(hn::ShiftRight<6>(both)));
      scale = hn::Mul(gguf_halves(block, lane), gguf_floats(gguf_bits(both, 0, 63)));
      bias = hn::Neg(hn::Mul(gguf_halves(block + 32, lane), gguf_floats(min)));
      return;
    }
    case GgufFormat::kQ6_K: {
      const auto bytes = hn::LoadU(hn::Rebind<int8_t, FloatTag>(),
                                   reinterpret_cast<const int8_t*>(block + 32 + 16 * group) + lane);
      scale =
          hn::Mul(gguf_halves(block, lane), hn::ConvertTo(kFloats, hn::PromoteTo(IntTag(), bytes)));
      return zero_at(32);
    }
    case GgufFormat::kIq4Xs: {
      const GgufWords low = gguf_bits(gguf_words<uint16_t>(block + 32, lane), 4 * group, 15);
      const GgufWords high = gguf_bits(gguf_words<uint8_t>(block + 64, lane), 2 * group, 3);
      scale = hn::Mul(gguf_halves(block, lane), gguf_six_bits(low, high));
      bias = hn::Zero(kFloats);
      return;
    }
    default:  // q4_0, q5_0, q8_0 and iq4_nl
      scale = gguf_halves(block + 32 * group, lane);
      return zero_at(static_cast<float>(gguf_layout(format).zero));
  }
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
