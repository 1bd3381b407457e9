#pragma once
// What GGUF's formats of 4 bits are to quantised_tiles_amx-inl.h. Included by *_amx_cpu.cpp only;
// everything is in an anonymous namespace, because these files are built for one instruction set.
#include "ops/linear/gguf/gguf_scales_avx512-inl.h"
#include "ops/linear/quantised_tiles_amx-inl.h"

namespace quire::ops {
namespace {

template <GgufFormat kFormat>
class GgufFourTiles {
 public:
  static constexpr GgufLayout kLayout = gguf_layout(kFormat);
  static constexpr int kBits = 4;
  static constexpr bool kGroupsOf16 = false;

  HWY_INLINE void load(const QuantisedLayout&, int64_t groups, const uint8_t* block) {
    for (int64_t g = 0; g < groups; ++g) {
      const GgufScales s = load_gguf_scales<kFormat>(block, g);
      _mm512_store_ps(scale_[g], s.scale);
      if constexpr (kLayout.has_min) _mm512_store_ps(bias_[g], s.bias);
    }
  }
  HWY_INLINE __m512 table(int64_t g, int64_t n) const {
    return gguf_table<kFormat>(scale_[g][n], kLayout.has_min ? bias_[g][n] : 0.0f);
  }

 private:
  alignas(64) float scale_[4][16], bias_[4][16];
};

}  // namespace
}  // namespace quire::ops
