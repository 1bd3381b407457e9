#pragma once
// Quantised weights whose bfloat16 values are made in registers, for vdpbf16ps. Included by
// *_avx512_bf16_cpu.cpp and *_amx_cpu.cpp only; everything is in an anonymous namespace, because
// these files are built for one instruction set.
//
// Values is a format's block of 128 k of 16 rows (quantised_layout.h):
//   static constexpr int kBits;                of a code
//   static constexpr int64_t kBlockBytes;      of a block, at most
//   static constexpr bool kAlwaysNear;         whether load() is always true
//   bool load(layout, block);                  whether its scales are near: such as most models
//                                              have, for which codes become floats in fewer steps
//   void pairs<kNear>(half, m, takes) const;   of k = 64 half + 8 m and the next seven: takes(j, w)
//                                              for w of the pair from 2 j on, in ascending order
//                                              [16 rows][2]. Where m is known when it is compiled,
//                                              its shifts are. kNear: only if load() said so.
#include "ops/linear/quantised_source_avx512_bf16-inl.h"

namespace quire::ops {
namespace {

// Values as a source of quantised_source_avx512_bf16-inl.h.
template <class Values>
class ValuesSource {
 public:
  static constexpr int kBits = Values::kBits;

  HWY_INLINE void load(const QuantisedLayout& layout, const uint8_t* block) {
    near_ = values_.load(layout, block);
  }
  template <int kHalf, class Between>
  HWY_INLINE void half(uint16_t* out, Between& between) {
    if constexpr (!Values::kAlwaysNear)
      if (!near_) return store_converted(kHalf, out, between);
    store(kHalf, out, between);
  }

 private:
  template <bool kNear, class Between>
  HWY_INLINE void store_step(int half, int m, uint16_t* out, Between& between) const {
    values_.template pairs<kNear>(half, m, [&](int j, __m512bh w) HWY_ATTR {
      _mm512_store_si512(out + (4 * m + j) * 32, (__m512i)w);
    });
    between();
  }
  template <class Between>
  HWY_NOINLINE void store(int half, uint16_t* out, Between& between) const {
#pragma GCC unroll 8
    for (int m = 0; m < 8; ++m) store_step<true>(half, m, out, between);
  }
  template <class Between>
  HWY_NOINLINE void store_converted(int half, uint16_t* out, Between& between) const {
#pragma GCC unroll 1
    for (int m = 0; m < 8; ++m) store_step<false>(half, m, out, between);
  }

  Values values_;
  bool near_ = true;
};

}  // namespace
}  // namespace quire::ops
