#pragma once
// What the kernels for AMX and for AVX-512 with BF16 or VNNI share: the vector arithmetic between
// the products. Bit for bit that of attention_tiles-inl.h, which has the reasons. Included by their
// *_cpu.cpp files only; everything is in an anonymous namespace, because these files are built for
// one instruction set.
#include <type_traits>

#include "ops/cpu/transpose_avx512-inl.h"
#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::ops {
namespace {

constexpr int64_t kChunk = kAttentionChunk;
constexpr int64_t kBlock = kAttentionBlock;
constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kNegativeInfinity = -__builtin_inff();

// The first n >= 0 lanes of a mask, or all of them.
template <class Mask>
inline Mask first_lanes(int64_t n) {
  using Word = std::conditional_t<sizeof(Mask) == 8, uint64_t, uint32_t>;
  constexpr int64_t kLanes = 8 * sizeof(Mask);
  // NOLINTNEXTLINE(clang-analyzer-core.BitwiseShift): n is not negative
  return static_cast<Mask>(n >= kLanes ? ~Word{0} : (Word{1} << n) - 1);
}

inline __m512i load_bits(const void* p) { return _mm512_loadu_si512(p); }
inline __m512 even_halves(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
}
inline __m512 odd_halves(__m512i pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000u))));
}

// 2^x for x <= 0, in the lanes of `mask` (0 elsewhere): exp2_nonpositive of attention_tiles-inl.h.
// Its product with 2^n never leaves the normal range, so that n can be added to the exponent.
inline __m512 exp2_nonpositive(__m512 x, __mmask16 mask = 0xFFFF) {
  const __m512 shifted = _mm512_add_ps(x, _mm512_set1_ps(12582912.0f));
  const __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 y = _mm512_set1_ps(0x1.41fbbcp-13f);
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.5f3e54p-10f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.3b2d4cp-7f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.c6aee8p-5f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.ebfbdcp-3f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(0x1.62e43p-1f));
  y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0f));
  const __mmask16 kept = _mm512_mask_cmp_ps_mask(mask, x, _mm512_set1_ps(-125.0f), _CMP_NLT_UQ);
  const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_maskz_add_epi32(kept, _mm512_castps_si512(y), n));
}

// tanh_floats of attention_tiles-inl.h.
inline __m512 tanh_floats(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 size = _mm512_abs_ps(x), z = _mm512_mul_ps(x, x);
  __m512 y = _mm512_set1_ps(-5.70498872745e-3f);
  y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(2.06390887954e-2f));
  y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(-5.37397155531e-2f));
  y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(1.33314422036e-1f));
  y = _mm512_fmadd_ps(y, z, _mm512_set1_ps(-3.33332819422e-1f));
  y = _mm512_fmadd_ps(_mm512_mul_ps(y, z), x, x);
  const __m512 t = exp2_nonpositive(_mm512_mul_ps(size, _mm512_set1_ps(-2.0f * kLog2E)));
  const __m512 far = _mm512_div_ps(_mm512_sub_ps(one, t), _mm512_add_ps(one, t));
  const __m512i sign = _mm512_set1_epi32(static_cast<int>(0x80000000u));
  const __m512 signed_far = _mm512_castsi512_ps(_mm512_ternarylogic_epi32(
      sign, _mm512_castps_si512(x), _mm512_castps_si512(far), 0xCA));  // sign ? x : far
  const __mmask16 near = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0.625f), _CMP_LT_OQ);
  return _mm512_mask_blend_ps(near, signed_far, y);
}

// Scores of a row are 16 columns at a time, kSpread times as far apart as if they were contiguous:
// by 1, or by kTileSpread in tiles of 16 by 16.
constexpr int64_t kTileSpread = 16;

// Lanes of a vector at t that lie in [begin, end).
inline __mmask16 lanes_in(int64_t t, int64_t begin, int64_t end) {
  const int64_t from = begin > t ? begin - t : 0, to = end < t + 16 ? end - t : 16;
  if (from >= 16 || to <= from) return 0;
  return static_cast<__mmask16>((0xFFFFu >> (16 - to)) & (0xFFFFu << from));
}

template <int64_t kSpread = 1>
inline void cap_scores(const AttentionKernelParams& p, float* scores, int64_t begin, int64_t end) {
  const __m512 scale = _mm512_set1_ps(p.softcap_scale), cap = _mm512_set1_ps(p.softcap);
  for (int64_t t = begin / 16 * 16; t < end; t += 16) {
    const __m512 x = _mm512_mul_ps(_mm512_load_ps(scores + t * kSpread), scale);
    _mm512_store_ps(scores + t * kSpread, _mm512_mul_ps(tanh_floats(x), cap));
  }
}

template <int64_t kSpread = 1>
inline void bias_scores(float slope, float scale, float at, float* scores, int64_t begin,
                        int64_t end) {
  const __m512 slopes = _mm512_set1_ps(slope), scales = _mm512_set1_ps(scale);
  const __m512 lanes = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int64_t t = begin / 16 * 16; t < end; t += 16) {
    const __m512 column = _mm512_add_ps(_mm512_set1_ps(static_cast<float>(t)), lanes);
    const __m512 distance = _mm512_abs_ps(_mm512_sub_ps(_mm512_set1_ps(at), column));
    const __m512 s = _mm512_mul_ps(_mm512_load_ps(scores + t * kSpread), scales);
    _mm512_store_ps(scores + t * kSpread, _mm512_fnmadd_ps(slopes, distance, s));
  }
}

template <int64_t kSpread = 1>
inline float max_visible(const float* scores, int64_t begin, int64_t end) {
  const __m512 lowest = _mm512_set1_ps(kNegativeInfinity);
  __m512 a = lowest, b = lowest;
  int64_t t = begin / 16 * 16;
  if (t < begin) {
    a = _mm512_mask_loadu_ps(lowest, lanes_in(t, begin, end), scores + t * kSpread);
    t += 16;
  }
  for (; t + 32 <= end; t += 32) {
    a = _mm512_max_ps(a, _mm512_load_ps(scores + t * kSpread));
    b = _mm512_max_ps(b, _mm512_load_ps(scores + (t + 16) * kSpread));
  }
  for (; t < end; t += 16)
    b = _mm512_max_ps(b,
                      _mm512_mask_loadu_ps(lowest, lanes_in(t, begin, end), scores + t * kSpread));
  return _mm512_reduce_max_ps(_mm512_max_ps(a, b));
}

// 32 numbers as bfloat16, those of `a` first.
__attribute__((always_inline)) inline __m512i to_bf16(__m512 a, __m512 b) {
#if defined(__AVX512BF16__)
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
#else
  const auto rounded = [](__m512 x) {
    const __m512i bits = _mm512_castps_si512(x), upper = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
    const __m512i nearest = _mm512_srli_epi32(_mm512_add_epi32(bits, half), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(
        _mm512_mask_or_epi32(nearest, is_nan, upper, _mm512_set1_epi32(0x40)));
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(rounded(a)), rounded(b), 1);
#endif
}

// The sum of 16 lanes, folded in halves.
inline float fold(__m512 v) {
  const __m256 x = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

// Scores of a row become unnormalised probabilities p = 2^((s - peak) * exponent_scale), as
// bfloat16, 32 columns at a time: those in [begin, end), 0 in the others. `sum` is of the
// unrounded, in lanes. kScaled: p is stored times the tokens' weights, whatever those are in the
// others.
template <bool kScaled, int64_t kSpread = 1>
struct SoftmaxRow {
  // They take the place of scores, which are twice as wide.
  static constexpr int64_t kProbabilitySpread = kSpread == 1 ? 1 : 2 * kSpread;
  const float* scores;
  uint16_t* probabilities;
  int64_t begin, end;
  __m512 peak, scale, sum;
  const float* weights = nullptr;

  __attribute__((always_inline)) __m512 probability(int64_t t, __mmask16 mask) const {
    return exp2_nonpositive(
        _mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(scores + t * kSpread), peak), scale), mask);
  }
  __attribute__((always_inline)) void columns(int64_t t) {
    __m512 a, b;
    __mmask16 left = 0xFFFF, right = 0xFFFF;
    if (begin <= t && t + 32 <= end) {
      a = probability(t, 0xFFFF);
      b = probability(t + 16, 0xFFFF);
    } else {
      left = lanes_in(t, begin, end);
      right = lanes_in(t + 16, begin, end);
      a = probability(t, left);
      b = probability(t + 16, right);
    }
    sum = _mm512_add_ps(_mm512_add_ps(sum, a), b);
    if constexpr (kScaled) {
      a = _mm512_maskz_mul_ps(left, a, _mm512_load_ps(weights + t));
      b = _mm512_maskz_mul_ps(right, b, _mm512_load_ps(weights + t + 16));
    }
    _mm512_store_si512(probabilities + t * kProbabilitySpread, to_bf16(a, b));
  }
};

// Interleaved V has columns 8j + 0..3 of each 32 in its first tile and 8j + 4..7 in the second:
// these bring a row's two vectors back into order.
inline void in_order(__m512& a, __m512& b) {
  const __m512i lower = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i upper = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
  a = _mm512_castpd_ps(_mm512_permutex2var_pd(x, lower, y));
  b = _mm512_castpd_ps(_mm512_permutex2var_pd(x, upper, y));
}

// Quotients by one divisor, each the nearest float as of a division, which takes twice as long. By
// Markstein's theorem: the remainder of a quotient within an ulp is exact, and times the correctly
// rounded reciprocal makes it the nearest; the first step brings it within that ulp. This needs all
// of them in the normal range: elsewhere it divides. A quotient of 0 keeps its sign.
struct Divisor {
  explicit Divisor(float l)
      : value(_mm512_set1_ps(l)),
        reciprocal(_mm512_set1_ps(1.0f / l)),
        usual(l > 0x1p-20f && l < 0x1p40f) {}

  __attribute__((always_inline)) __m512 divide(__m512 x) const {
    const __m512i size = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7F800000));
    // Not from 2^-60 to 2^80, in one comparison of integers without sign.
    const __mmask16 far = _mm512_cmpgt_epu32_mask(
        _mm512_sub_epi32(size, _mm512_set1_epi32((127 - 60) << 23)), _mm512_set1_epi32(140 << 23));
    const __mmask16 some = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    if (!usual || (far & some) != 0) return _mm512_div_ps(x, value);
    return nearer(x, nearer(x, _mm512_mul_ps(x, reciprocal), some), some);
  }

 private:
  __attribute__((always_inline)) __m512 nearer(__m512 x, __m512 q, __mmask16 some) const {
    return _mm512_mask3_fmadd_ps(_mm512_fnmadd_ps(q, value, x), reciprocal, q, some);
  }
  __m512 value, reciprocal;
  bool usual;
};

// Writes total / l, n columns of it, as bfloat16; a row that saw nothing has a total of 0.
inline void finish_row(const float* total, float l, uint16_t* out, int64_t n) {
  const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
  const Divisor divisor(l == 0 ? 1.0f : l);
  for (int64_t d = 0; d < n; d += 32) {
    const __m512 a = divisor.divide(_mm512_load_ps(total + d));
    const __m512 b = divisor.divide(_mm512_load_ps(total + d + 16));
    const __m512i bits = _mm512_permutexvar_epi64(order, to_bf16(a, b));
    const auto mask = first_lanes<__mmask32>(n - d);
    _mm512_mask_storeu_epi16(out + d, mask, bits);
  }
}

// The first 32 or fewer elements of a row, 0 beyond them.
inline __m512i load_row(const uint16_t* row, int64_t n) {
  if (n >= 32) return load_bits(row);
  return _mm512_maskz_loadu_epi16(first_lanes<__mmask32>(n), row);
}

// Scores of 16 tokens come as the rows of a tile, `columns` of them: stored so many bytes apart,
// they are taken apart into columns, in a third of a transposition's time if they are few.
inline int64_t column_stride(int64_t columns) { return columns <= 4 ? 16 : 64; }
__attribute__((always_inline)) inline void load_columns(const void* tokens, int64_t columns,
                                                        __m512i (&column)[16]) {
  const char* at = static_cast<const char*>(tokens);
  if (columns > 4) {
    for (int i = 0; i < 16; ++i) column[i] = load_bits(at + i * 64);
    transpose(column);
    return;
  }
  __m512i v[4], w[4];
  for (int i = 0; i < 4; ++i) v[i] = load_bits(at + i * 64);
  w[0] = _mm512_unpacklo_epi32(v[0], v[1]);
  w[1] = _mm512_unpackhi_epi32(v[0], v[1]);
  w[2] = _mm512_unpacklo_epi32(v[2], v[3]);
  w[3] = _mm512_unpackhi_epi32(v[2], v[3]);
  // Quarter i of a column has the tokens i, 4 + i, 8 + i and 12 + i.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  column[0] = _mm512_permutexvar_epi32(order, _mm512_unpacklo_epi64(w[0], w[2]));
  column[1] = _mm512_permutexvar_epi32(order, _mm512_unpackhi_epi64(w[0], w[2]));
  column[2] = _mm512_permutexvar_epi32(order, _mm512_unpacklo_epi64(w[1], w[3]));
  column[3] = _mm512_permutexvar_epi32(order, _mm512_unpackhi_epi64(w[1], w[3]));
}

// ---- codes: the arithmetic of kv_codes-inl.h and of the functions of the same names in
// attention_tiles-inl.h ----

struct CodeScale {
  float scale, inverse;
};
inline CodeScale scale_of(float absmax, float limit) {
  if (!(absmax < __builtin_inff())) return {__builtin_nanf(""), 0.0f};
  if (absmax < kMinQuantised) return {0.0f, 0.0f};
  return {absmax / limit, limit / absmax};
}
// Magnitudes as integers: NaN is the largest.
inline __m512i larger_bits(__m512i peak, __m512 v) {
  const __m512i bits = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7FFFFFFF));
  return _mm512_max_epu32(peak, bits);
}
inline float largest(__m512i peak) {
  const uint32_t bits = _mm512_reduce_max_epu32(peak);
  float value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

// 32 codes as bfloat16, which is exact.
inline __m512i bf16_of_fp8(__m256i codes) {
  // 0 to 7 times 2^-9; not as denormals, which the matrix unit takes for 0.
  const __m512i small = _mm512_castsi128_si512(
      _mm_setr_epi16(0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60));
  const __m512i code = _mm512_cvtepu8_epi16(codes);
  const __m512i size = _mm512_and_si512(code, _mm512_set1_epi16(0x7F));
  const __m512i sign = _mm512_slli_epi16(_mm512_and_si512(code, _mm512_set1_epi16(0x80)), 8);
  __m512i bits = _mm512_add_epi16(_mm512_slli_epi16(size, 4), _mm512_set1_epi16(120 << 7));
  const __mmask32 is_small = _mm512_cmplt_epu16_mask(size, _mm512_set1_epi16(8));
  bits = _mm512_mask_permutexvar_epi16(bits, is_small, size, small);
  const __mmask32 is_nan = _mm512_cmpeq_epi16_mask(size, _mm512_set1_epi16(0x7F));
  bits = _mm512_mask_mov_epi16(bits, is_nan, _mm512_set1_epi16(0x7FC0));
  return _mm512_or_si512(bits, sign);
}

// Up to 64 bytes, 0 beyond them.
inline __m512i load_bytes(const void* row, int64_t n) {
  return n >= 64 ? load_bits(row) : _mm512_maskz_loadu_epi8(first_lanes<__mmask64>(n), row);
}
// The low bytes of 16 integers.
__attribute__((always_inline)) inline void store_bytes(void* to, __m512i integers) {
  _mm_store_si128(static_cast<__m128i*>(to), _mm512_cvtepi32_epi8(integers));
}
// Up to 16 elements of bfloat16, 0 beyond them.
inline __m512 float_row(const uint16_t* row, int64_t n) {
  const __m256i half = _mm256_maskz_loadu_epi16(first_lanes<__mmask16>(n), row);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// From column d on, n bytes of four rows become the words of four vectors: lane i of the j-th has
// the columns 16 i + 4 j and on.
__attribute__((always_inline)) inline void interleave_bytes(const uint8_t* const (&row)[4],
                                                            int64_t d, int64_t n,
                                                            __m512i (&words)[4]) {
  const __m512i a = load_bytes(row[0] + d, n), b = load_bytes(row[1] + d, n);
  const __m512i x = load_bytes(row[2] + d, n), y = load_bytes(row[3] + d, n);
  const __m512i ab = _mm512_unpacklo_epi8(a, b), ab2 = _mm512_unpackhi_epi8(a, b);
  const __m512i xy = _mm512_unpacklo_epi8(x, y), xy2 = _mm512_unpackhi_epi8(x, y);
  words[0] = _mm512_unpacklo_epi16(ab, xy);
  words[1] = _mm512_unpackhi_epi16(ab, xy);
  words[2] = _mm512_unpacklo_epi16(ab2, xy2);
  words[3] = _mm512_unpackhi_epi16(ab2, xy2);
}
// The same, stored in four tiles that are `tile_bytes` apart.
__attribute__((always_inline)) inline void interleave_bytes(const uint8_t* const (&row)[4],
                                                            int64_t d, int64_t n, void* to,
                                                            int64_t tile_bytes) {
  __m512i words[4];
  interleave_bytes(row, d, n, words);
  for (int64_t j = 0; j < 4; ++j)
    _mm512_store_si512(static_cast<char*>(to) + j * tile_bytes, words[j]);
}
// Brings the sums of 64 such columns back into order.
inline void in_byte_order(float* sums) {
  __m512 v[4], w[4];
  for (int j = 0; j < 4; ++j) v[j] = _mm512_load_ps(sums + 16 * j);
  w[0] = _mm512_shuffle_f32x4(v[0], v[1], 0x44);
  w[1] = _mm512_shuffle_f32x4(v[2], v[3], 0x44);
  w[2] = _mm512_shuffle_f32x4(v[0], v[1], 0xEE);
  w[3] = _mm512_shuffle_f32x4(v[2], v[3], 0xEE);
  _mm512_store_ps(sums, _mm512_shuffle_f32x4(w[0], w[1], 0x88));
  _mm512_store_ps(sums + 16, _mm512_shuffle_f32x4(w[0], w[1], 0xDD));
  _mm512_store_ps(sums + 32, _mm512_shuffle_f32x4(w[2], w[3], 0x88));
  _mm512_store_ps(sums + 48, _mm512_shuffle_f32x4(w[2], w[3], 0xDD));
}
// finish_row for columns that are in order.
inline void finish_ordered_row(const float* total, float l, uint16_t* out, int64_t n) {
  const Divisor divisor(l == 0 ? 1.0f : l);
  for (int64_t d = 0; d < n; d += 16) {
    const __m512 x = divisor.divide(_mm512_load_ps(total + d));
    const auto mask = first_lanes<__mmask16>(n - d);
    _mm256_mask_storeu_epi16(out + d, mask, _mm512_castsi512_si256(to_bf16(x, x)));
  }
}

template <int64_t kSpread = 1>
inline void scale_scores(const float* scales, float* scores, int64_t begin, int64_t end) {
  for (int64_t t = begin / 16 * 16; t < end; t += 16)
    _mm512_store_ps(scores + t * kSpread, _mm512_mul_ps(_mm512_load_ps(scores + t * kSpread),
                                                        _mm512_load_ps(scales + t)));
}

// Scores of an int8 pool become p times the tokens' weights, in place; what split_weights makes
// 16-bit integers of.
template <int64_t kSpread>
struct WeightRowOf {
  float* scores;
  const float* weights;
  int64_t begin, end;
  __m512 peak, scale, sum;
  __m512i largest;

  __attribute__((always_inline)) void columns(int64_t t) {
    if (begin <= t && t + 32 <= end) {
      column(t, 0xFFFF);
      column(t + 16, 0xFFFF);
    } else {
      column(t, lanes_in(t, begin, end));
      column(t + 16, lanes_in(t + 16, begin, end));
    }
  }
  __attribute__((always_inline)) void column(int64_t t, __mmask16 mask) {
    const __m512 s = _mm512_sub_ps(_mm512_load_ps(scores + t * kSpread), peak);
    const __m512 probability = exp2_nonpositive(_mm512_mul_ps(s, scale), mask);
    sum = _mm512_add_ps(sum, probability);
    const __m512 weight = _mm512_maskz_mul_ps(mask, probability, _mm512_load_ps(weights + t));
    largest = larger_bits(largest, weight);
    _mm512_store_ps(scores + t * kSpread, weight);
  }
};
using WeightRow = WeightRowOf<1>;

// The weights' 16-bit integers, 0 if they have no scale.
__attribute__((always_inline)) inline __m512i integers(const float* weights,
                                                       const CodeScale& scale) {
  const __mmask16 some = scale.inverse == 0 ? 0 : 0xFFFF;
  return _mm512_maskz_cvtps_epi32(
      some, _mm512_mul_ps(_mm512_load_ps(weights), _mm512_set1_ps(scale.inverse)));
}
// Of 32 weights, their high and their low bytes; `high` may be where the weights of a row begin.
template <int64_t kSpread = 1>
__attribute__((always_inline)) inline void split_weights(const float* weights,
                                                         const CodeScale& scale, uint8_t* high,
                                                         uint8_t* low) {
  const __m512i a = integers(weights, scale), b = integers(weights + 16 * kSpread, scale);
#if defined(__AVX512VBMI__)
  // Lane i of the first and of the second, as 16-bit words, then bytes apart.
  const __m512i even_bytes = _mm512_set1_epi32(0x0C080400);
  const __m512i lane =
      _mm512_setr_epi32(0, 16, 32, 48, 64, 80, 96, 112, 0, 16, 32, 48, 64, 80, 96, 112);
  const __m512i from =
      _mm512_add_epi8(even_bytes, _mm512_mullo_epi32(lane, _mm512_set1_epi32(0x01010101)));
  const __m512i upper = _mm512_maskz_set1_epi8(0xFFFFFFFFull, 1);
  const __m512i bytes = _mm512_permutex2var_epi8(a, _mm512_add_epi8(from, upper), b);
  _mm256_store_si256(reinterpret_cast<__m256i*>(high), _mm512_castsi512_si256(bytes));
  _mm256_store_si256(reinterpret_cast<__m256i*>(low), _mm512_extracti64x4_epi64(bytes, 1));
#else
  store_bytes(high, _mm512_srli_epi32(a, 8));
  store_bytes(high + 16, _mm512_srli_epi32(b, 8));
  store_bytes(low, a);
  store_bytes(low + 16, b);
#endif
}

// The codes of 16 elements of a query, 127 * 256 + 127 at most.
inline __m512i query_codes(__m512 q, const CodeScale& scale) {
  const __mmask16 some = scale.inverse == 0 ? 0 : 0xFFFF;
  return _mm512_maskz_cvtps_epi32(some, _mm512_mul_ps(q, _mm512_set1_ps(scale.inverse)));
}
// The same in two parts.
struct QueryParts {
  __m512i high, low;
};
inline QueryParts query_parts(__m512 q, const CodeScale& scale) {
  const __m512i code = query_codes(q, scale);
  const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(code, _mm512_set1_epi32(128)), 8);
  return {high, _mm512_sub_epi32(code, _mm512_slli_epi32(high, 8))};
}
// high * 256 + low, parts below 2^24, rounded once: also where 32 bits would not hold it.
__attribute__((always_inline)) inline __m512 sum_of_parts(__m512i high, __m512i low) {
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), _mm512_set1_ps(256.0f), _mm512_cvtepi32_ps(low));
}
// Of a row of bfloat16.
inline CodeScale query_scale(const uint16_t* q, int64_t n) {
  __m512i peak = _mm512_setzero_si512();
  for (int64_t d = 0; d < n; d += 32) {
    const __m512i pairs = load_row(q + d, n - d);
    peak = larger_bits(larger_bits(peak, even_halves(pairs)), odd_halves(pairs));
  }
  return scale_of(largest(peak), kMaxQuery16);
}

// Asks for a line of memory: into L2, because what is asked for ahead is more than L1 holds, which
// waits for few lines; bytes by VNNI, of which fewer come while as much is computed, into L1. In
// assembly, because gcc 12 takes a function that does nothing else for one without effect, and
// drops its calls.
__attribute__((always_inline)) inline void ask_for_line(const void* line) {
#if defined(__AVX512BF16__)
  asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(line)));
#else
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(line)));
#endif
}

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Hands out pieces of scratch, each from a cache line on and one line apart. From a null base it
// only adds up their size.
struct Scratch {
  char* base = nullptr;
  int64_t used = 0;

  template <class T>
  __attribute__((always_inline)) T* take(int64_t count) {
    char* at = base + used;
    used += round_up(count * static_cast<int64_t>(sizeof(T)), 64) + 64;
    return reinterpret_cast<T*>(at);
  }
};

}  // namespace
}  // namespace quire::ops
