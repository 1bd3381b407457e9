#pragma once
// Quantised weights to tiles of bfloat16, 16 outputs by 32 k. Included by *_amx_cpu.cpp only;
// everything is in an anonymous namespace, because these files are built for one instruction set.
//
// What the codes mean is told by a source, one for each format:
//
//   static constexpr int kBits;                   of a code
//   void load(layout, groups, block);             a block's scales
// Of 4 bits:
//   static constexpr bool kGroupsOf16;            two groups in a tile, otherwise at most one
//   __m512 table(g, n) const;                     the values of the 16 codes of output n, group g
// Of 8 bits, where q has 64 bytes of each output and part is 0 for the first 32 of them, or 1:
//   void step<part>(q, g, out) const;             all outputs: out [16][32]
//   void four_rows(q, part, g, n, r) const;       outputs n .. n + 3; q begins with output n
//
// Sources avoid instructions that need a multiplier (conversions and shifts among them):
// while the tile unit works only one of the two vector ports has one. Those that move bytes use the
// other.

#include "ops/cpu/amx-inl.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {
namespace {

// Two tables, the first one low.
template <class Source>
HWY_INLINE __m512i tables(const Source& s, int64_t g0, int64_t n0, int64_t g1, int64_t n1) {
  return (__m512i)_mm512_cvtne2ps_pbh(s.table(g1, n1), s.table(g0, n0));
}

// Bits of each word that bring nibble 0, 1, 2 or 3 to bits 1-4 of each of its bytes.
constexpr int64_t kNibbleShifts[4] = {0x2F2F1F1F0F0FFFFF, 0x3333232313130303, 0x3737272717170707,
                                      0x3B3B2B2B1B1B0B0B};
// The values of a nibble of each word, from table 0 or 1 of two: both bytes of a word look up
// theirs at 32 table + 2 nibble + which byte.
HWY_INLINE __m512i look_up_at(__m512i words, __m512i two_tables, int nibble, __m512i which) {
  const __m512i shifted =
      _mm512_multishift_epi64_epi8(_mm512_set1_epi64(kNibbleShifts[nibble]), words);
  const __m512i index =
      _mm512_ternarylogic_epi32(shifted, _mm512_set1_epi8(0x1E), which, 0xEA);  // (a & b) | c
  return _mm512_permutexvar_epi8(index, two_tables);
}
HWY_INLINE __m512i look_up(__m512i words, __m512i two_tables, int nibble, int table) {
  return look_up_at(words, two_tables, nibble, _mm512_set1_epi16(table ? 0x2120 : 0x0100));
}
// The first 16 words from table 0, the last from table 1.
HWY_INLINE __m512i look_up(__m512i words, __m512i two_tables, int nibble) {
  return look_up_at(words, two_tables, nibble,
                    _mm512_inserti64x4(_mm512_set1_epi16(0x0100), _mm256_set1_epi16(0x2120), 1));
}

}  // namespace
}  // namespace quire::ops
