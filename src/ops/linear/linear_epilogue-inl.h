// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. What every kernel of
// linear() does with its sums: bias, rounding, residual or gate, and the store. One text, so that
// all agree bit for bit.
#include "ops/gated_activation/gated_activation-inl.h"
#include "ops/linear/linear_kernel.h"

#if defined(QUIRE_OPS_LINEAR_EPILOGUE_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_LINEAR_EPILOGUE_TARGET_
#undef QUIRE_OPS_LINEAR_EPILOGUE_TARGET_
#else
#define QUIRE_OPS_LINEAR_EPILOGUE_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// round_floats and store_floats. Where there is an instruction for bfloat16 it is used: the same
// bits for what sums can be, because with denormals flushed none of them is one.
template <class Out>
HWY_INLINE FloatVec round_output(FloatVec v) {
#if defined(__AVX512BF16__) && HWY_TARGET == HWY_AVX3
  if constexpr (hwy::IsSame<Out, Bf16>()) {
    const __m256i bits = (__m256i)_mm512_cvtneps_pbh(v.raw);
    return FloatVec{_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
#endif
  return round_floats<Out>(v);
}
template <class Out>
HWY_INLINE void store_output(FloatVec v, Out* p) {
#if defined(__AVX512BF16__) && HWY_TARGET == HWY_AVX3
  if constexpr (hwy::IsSame<Out, Bf16>()) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(v.raw));
    return;
  }
#endif
  store_floats(v, p);
}

// Up to kLanes outputs from `column` on; n of them exist.
template <class T>
HWY_INLINE FloatVec load_some(const T* p, int64_t n) {
  return n >= kLanes ? load_floats(p) : load_floats(p, n);
}
template <class T>
HWY_INLINE void store_some(FloatVec v, T* p, int64_t n) {
  if (n >= kLanes) {
    store_output(v, p);
  } else {
    store_floats(v, p, n);
  }
}

// Up to kLanes outputs of a row from `column` on, not yet rounded.
template <class Out>
HWY_INLINE FloatVec plain_outputs(const LinearParams& p, const float* acc, int64_t row,
                                  int64_t column, int64_t n) {
  FloatVec v = hn::LoadU(kFloats, acc);
  if (p.bias) v = hn::Add(v, load_some(p.bias + column, n));
  if (p.residual)
    v = hn::Add(round_output<Out>(v),
                load_some(static_cast<const Out*>(p.residual) + row * p.n + column, n));
  return v;
}
// Of gates (acc) and ups (acc + 16).
template <class Out>
HWY_INLINE FloatVec gated_outputs(const LinearParams& p, const float* acc, int64_t column,
                                  int64_t n) {
  FloatVec gate = hn::LoadU(kFloats, acc), up = hn::LoadU(kFloats, acc + 16);
  if (p.bias) {
    gate = hn::Add(gate, load_some(p.bias + column, n));
    up = hn::Add(up, load_some(p.bias + p.n / 2 + column, n));
  }
  return apply_gate(p.gate, round_output<Out>(gate), round_output<Out>(up));
}

// One row of one panel; `columns` of its 16 outputs exist.
template <class Out>
HWY_INLINE void finish_panel_row(const LinearParams& p, const float* acc, int64_t row,
                                 int64_t column, int64_t columns) {
  Out* y = static_cast<Out*>(p.y) + row * p.n + column;
  for (int64_t i = 0; i < columns; i += kLanes)
    store_some(plain_outputs<Out>(p, acc + i, row, column + i, columns - i), y + i, columns - i);
}

// One row of a panel of gates (acc) and a panel of ups (acc + 16).
template <class Out>
HWY_INLINE void finish_gated_row(const LinearParams& p, const float* acc, int64_t row,
                                 int64_t column, int64_t columns) {
  Out* y = static_cast<Out*>(p.y) + row * (p.n / 2) + column;
  for (int64_t i = 0; i < columns; i += kLanes)
    store_some(gated_outputs<Out>(p, acc + i, column + i, columns - i), y + i, columns - i);
}

// Two whole panels without bias and residual, the common case: full cache lines.
template <class Out>
HWY_INLINE void store_pairs(const LinearParams& p, const float* acc, int64_t stride, int64_t row,
                            int64_t rows, int64_t column) {
  Out* y = static_cast<Out*>(p.y) + row * p.n + column;
  for (int64_t r = 0; r < rows; ++r, acc += stride, y += p.n) {
#if defined(__AVX512BF16__) && HWY_TARGET == HWY_AVX3
    if constexpr (hwy::IsSame<Out, Bf16>()) {
      const __m512i pair =
          (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(acc + 16), _mm512_loadu_ps(acc));
      _mm512_storeu_si512(y, pair);
      continue;
    }
#endif
    for (int64_t i = 0; i < 32; i += kLanes) store_output(hn::LoadU(kFloats, acc + i), y + i);
  }
}

// Rows [row, row + rows) of `panels` panels (two with a gate) from panel `panel` on; acc is their
// sums, [rows][stride].
template <class Out>
HWY_INLINE void finish_rows(const LinearParams& p, const float* acc, int64_t stride, int64_t row,
                            int64_t rows, int64_t panel, int64_t panels) {
  const int64_t column = panel * 16;
  if (p.gated) {
    const int64_t columns = HWY_MIN(16, p.n / 2 - column / 2);
    for (int64_t r = 0; r < rows; ++r)
      finish_gated_row<Out>(p, acc + r * stride, row + r, column / 2, columns);
  } else if (panels == 2 && !p.bias && !p.residual && column + 32 <= p.n) {
    store_pairs<Out>(p, acc, stride, row, rows, column);
  } else {
    for (int64_t i = 0; i < panels; ++i)
      for (int64_t r = 0; r < rows; ++r)
        finish_panel_row<Out>(p, acc + r * stride + i * 16, row + r, column + i * 16,
                              HWY_MIN(16, p.n - column - i * 16));
  }
}

// Not inline: it is long, and kernels for each number of rows and format call it, once for some
// panels.
HWY_MAYBE_UNUSED HWY_NOINLINE void finish_outputs(const LinearParams& p, const float* acc,
                                                  int64_t stride, int64_t row, int64_t rows,
                                                  int64_t panel, int64_t panels) {
  switch (p.out_type) {
    case FloatType::kF32:
      return finish_rows<float>(p, acc, stride, row, rows, panel, panels);
    case FloatType::kF16:
      return finish_rows<F16>(p, acc, stride, row, rows, panel, panels);
    case FloatType::kBf16:
      return finish_rows<Bf16>(p, acc, stride, row, rows, panel, panels);
  }
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
