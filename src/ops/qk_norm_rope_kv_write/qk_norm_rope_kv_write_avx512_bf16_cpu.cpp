#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cpu.h"

#if defined(__AVX512BF16__)
#include "ops/cpu/intrinsics-inl.h"

// The kernel for bfloat16, bit for bit that of qk_norm_rope_kv_write_cpu.cpp: columns are taken
// apart into even and odd ones, which costs half of widening them in order, and rounded by the
// instruction for it instead of seven. What is rounded comes out of arithmetic that flushes
// denormals, as the instruction does.
namespace quire::ops {
namespace {

// Tokens whose heads' norms are found together: in vectors, and ahead of what waits for them.
constexpr int64_t kTokens = 4;
constexpr int64_t kStep = 32;  // columns of a vector

// The columns 0, 2, 4, ... and 1, 3, 5, ... of 32.
struct Columns {
  __m512 even, odd;
};

inline __m512i load_row(const uint16_t* x) { return _mm512_loadu_si512(x); }
inline Columns split(__m512i row) {
  const __m512i high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000u));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(row, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(row, high))};
}
inline Columns split(const float* x) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
  return {_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)};
}
inline Columns load_columns(const float* x) { return {_mm512_load_ps(x), _mm512_load_ps(x + 16)}; }
inline void store_columns(float* x, const Columns& c) {
  _mm512_store_ps(x, c.even);
  _mm512_store_ps(x + 16, c.odd);
}
// Rounds to nearest even.
inline __m512i join(const Columns& c) {
  const __m512i halves = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(c.odd, c.even));
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                         8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, halves);
}

inline Columns add_squares(const Columns& sum, __m512i row) {
  const Columns x = split(row);
  return {_mm512_fmadd_ps(x.even, x.even, sum.even), _mm512_fmadd_ps(x.odd, x.odd, sum.odd)};
}
inline __m256 fold(__m512 v) {
  return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}
inline __m128 fold(__m256 v) {
  return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
// In 64 lanes (lane = column mod 64) that are folded in halves, as sum_of_squares of
// rms_norm-inl.h.
inline float sum_of_squares(const uint16_t* x, int64_t dim) {
  Columns low = {_mm512_setzero_ps(), _mm512_setzero_ps()}, high = low;
  for (int64_t d = 0; d < dim; d += 2 * kStep) {
    low = add_squares(low, load_row(x + d));
    if (d + kStep < dim) high = add_squares(high, load_row(x + d + kStep));
  }
  const __m128 even = fold(fold(_mm512_add_ps(low.even, high.even)));  // columns 0, 2, 4, 6
  const __m128 odd = fold(fold(_mm512_add_ps(low.odd, high.odd)));
  const __m128 four = _mm_add_ps(_mm_movelh_ps(even, odd), _mm_movehl_ps(odd, even));
  const __m128 two = _mm_add_ps(four, _mm_movehdup_ps(four));  // in lanes 0 and 2
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehl_ps(two, two)));
}

template <bool kStream>
inline void store_row(uint16_t* y, __m512i row) {
  if constexpr (kStream) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(y), row);
  } else {
    _mm512_storeu_si512(y, row);
  }
}

// A row times its inverse norm and the weights (as store_columns has them), rounded; without
// weights the row itself.
template <bool kNorm>
inline __m512i normal_row(const uint16_t* x, const float* weight, __m512 inverse) {
  const __m512i row = load_row(x);
  if constexpr (!kNorm) return row;
  const Columns v = split(row), w = load_columns(weight);
  return join({_mm512_mul_ps(_mm512_mul_ps(v.even, inverse), w.even),
               _mm512_mul_ps(_mm512_mul_ps(v.odd, inverse), w.odd)});
}

inline __m512 turned_a(__m512 a, __m512 b, __m512 cos, __m512 sin) {
  return _mm512_fnmadd_ps(b, sin, _mm512_mul_ps(a, cos));
}
inline __m512 turned_b(__m512 a, __m512 b, __m512 cos, __m512 sin) {
  return _mm512_fmadd_ps(a, sin, _mm512_mul_ps(b, cos));
}

class Kernel {
 public:
  Kernel(const QkNormRopeKvWriteParams& params) : p(params), half(p.rotary_dim / 2) {
    split_all(p.q_norm, q_weight);
    split_all(p.k_norm, k_weight);
  }

  template <bool kStream>
  void run(int64_t begin, int64_t end) {
    const int64_t q_width = p.heads * p.head_dim, kv_width = p.kv_heads * p.head_dim;
    const bool norms = p.q_norm != nullptr || p.k_norm != nullptr;
    for (int64_t first = begin; first < end; first += kTokens) {
      const int64_t last = first + kTokens < end ? first + kTokens : end;
      // As many heads at a time as their norms have place; mostly all.
      for (int64_t h = 0; h < p.heads + p.kv_heads; h += kHeads) {
        const int64_t n = h + kHeads < p.heads + p.kv_heads ? kHeads : p.heads + p.kv_heads - h;
        if (norms) find_norms(first, last, h, n);
        for (int64_t t = first; t < last; ++t) {
          const uint16_t* x = row(t) + h * p.head_dim;
          const float* inverse = inverses + (t - first) * n;
          const int64_t queries = p.heads < h ? 0 : p.heads - h < n ? p.heads - h : n;
          split_turns(p.positions[t]);
          auto* q = static_cast<uint16_t*>(p.q) + t * q_width + h * p.head_dim;
          turn_heads<kStream>(p.q_norm != nullptr, q_weight, inverse, x, q, queries);
          if (p.slots[t] < 0 || queries == n) continue;
          auto* k = static_cast<uint16_t*>(p.k) + p.slots[t] * kv_width +
                    (h + queries - p.heads) * p.head_dim;
          turn_heads<kStream>(p.k_norm != nullptr, k_weight, inverse + queries,
                              x + queries * p.head_dim, k, n - queries);
        }
      }
      for (int64_t t = first; t < last; ++t) {
        if (p.slots[t] < 0) continue;
        const uint16_t* v = row(t) + q_width + kv_width;
        auto* to = static_cast<uint16_t*>(p.v) + p.slots[t] * kv_width;
        for (int64_t d = 0; d < kv_width; d += kStep) store_row<kStream>(to + d, load_row(v + d));
      }
    }
    if constexpr (kStream) _mm_sfence();
  }

 private:
  static constexpr int64_t kHeads = 64;

  const uint16_t* row(int64_t t) const { return static_cast<const uint16_t*>(p.qkv) + t * p.row; }

  void split_all(const float* weight, float* to) const {
    if (weight == nullptr) return;
    for (int64_t d = 0; d < p.head_dim; d += kStep) store_columns(to + d, split(weight + d));
  }
  void split_turns(int64_t position) {
    const float* cos = p.cos_sin + position * p.rotary_dim;
    for (int64_t d = 0; d < half; d += kStep) {
      store_columns(turns + 2 * d, split(cos + d));
      store_columns(turns + 2 * d + kStep, split(cos + half + d));
    }
  }

  // 1 / sqrt(mean(x^2) + eps) of the n heads from h on, of each token.
  void find_norms(int64_t first, int64_t last, int64_t h, int64_t n) {
    float* to = inverses;
    for (int64_t t = first; t < last; ++t) {
      const uint16_t* x = row(t) + h * p.head_dim;
      for (int64_t i = 0; i < n; ++i, x += p.head_dim) *to++ = sum_of_squares(x, p.head_dim);
    }
    const __m512 dim = _mm512_set1_ps(static_cast<float>(p.head_dim));
    const __m512 eps = _mm512_set1_ps(p.eps), one = _mm512_set1_ps(1.0f);
    for (float* at = inverses; at < to; at += 16) {
      const __m512 mean = _mm512_div_ps(_mm512_load_ps(at), dim);
      _mm512_store_ps(at, _mm512_div_ps(one, _mm512_sqrt_ps(_mm512_add_ps(mean, eps))));
    }
  }

  template <bool kStream>
  void turn_heads(bool norm, const float* weight, const float* inverse, const uint16_t* x,
                  uint16_t* y, int64_t n) const {
    for (int64_t h = 0; h < n; ++h, x += p.head_dim, y += p.head_dim) {
      if (norm) {
        turn_head<true, kStream>(weight, _mm512_set1_ps(inverse[h]), x, y);
      } else {
        turn_head<false, kStream>(weight, _mm512_setzero_ps(), x, y);
      }
    }
  }
  template <bool kNorm, bool kStream>
  __attribute__((always_inline)) void turn_head(const float* weight, __m512 inverse,
                                                const uint16_t* x, uint16_t* y) const {
    for (int64_t d = 0; d < half; d += kStep) {
      const Columns a = split(normal_row<kNorm>(x + d, weight + d, inverse));
      const Columns b = split(normal_row<kNorm>(x + half + d, weight + half + d, inverse));
      const Columns cos = load_columns(turns + 2 * d), sin = load_columns(turns + 2 * d + kStep);
      store_row<kStream>(y + d, join({turned_a(a.even, b.even, cos.even, sin.even),
                                      turned_a(a.odd, b.odd, cos.odd, sin.odd)}));
      store_row<kStream>(y + half + d, join({turned_b(a.even, b.even, cos.even, sin.even),
                                             turned_b(a.odd, b.odd, cos.odd, sin.odd)}));
    }
    for (int64_t d = p.rotary_dim; d < p.head_dim; d += kStep)
      store_row<kStream>(y + d, normal_row<kNorm>(x + d, weight + d, inverse));
  }

  const QkNormRopeKvWriteParams& p;
  const int64_t half;
  alignas(64) float q_weight[kMaxRotatedDim], k_weight[kMaxRotatedDim];
  alignas(64) float turns[2 * kMaxRotatedDim];  // of each 32 columns: cos, then sin
  alignas(64) float inverses[kTokens * kHeads];
};

}  // namespace

void qk_norm_rope_kv_write_avx512_bf16(const QkNormRopeKvWriteParams& params, int64_t begin,
                                       int64_t end, bool stream) {
  Kernel kernel(params);
  stream ? kernel.run<true>(begin, end) : kernel.run<false>(begin, end);
}

}  // namespace quire::ops
#endif
