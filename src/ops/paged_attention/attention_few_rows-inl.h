// Attention of few rows over bfloat16 pools, as decode has them: keys and values are used in
// registers as they come from the pool, by all rows of their head at once. The same sums in the
// same order as the tiles of many rows. Read once per target, by paged_attention_cpu.cpp only.
#include "ops/paged_attention/attention_tiles-inl.h"

#if defined(QUIRE_OPS_ATTENTION_FEW_ROWS_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_ATTENTION_FEW_ROWS_
#undef QUIRE_OPS_ATTENTION_FEW_ROWS_
#else
#define QUIRE_OPS_ATTENTION_FEW_ROWS_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// Rows whose sums fit in the registers beside a square of keys.
constexpr int kFewRows = kLanes == 16 ? 4 : kLanes == 8 ? 2 : 0;

#if HWY_TARGET != HWY_SCALAR

// The lower and the upper half of each word, which is two bfloat16.
HWY_INLINE FloatVec even_floats(WordVec words) {
  return hn::BitCast(kFloats, hn::ShiftLeft<16>(words));
}
HWY_INLINE FloatVec odd_floats(WordVec words) {
  return hn::BitCast(kFloats, hn::And(words, hn::Set(WordTag(), 0xFFFF0000u)));
}

// Scores of kLanes tokens from `token` on; `dim` is a multiple of 32. The first row's are at
// `scores`.
template <int kRows>
HWY_INLINE void score_few_tokens(const Rows<Bf16>& keys, Feed& feed, int64_t token, const float* q,
                                 int64_t q_next, int64_t dim, float* scores) {
  const Bf16* rows[kLanes];
  for (int64_t t = 0; t < kLanes; ++t) {
    rows[t] = keys[token + t];
    for (int64_t d = 0; d < dim; d += Feed::kPiece / 2) feed.ask();
  }
  FloatVec sum[kRows];
  for (auto& x : sum) x = hn::Zero(kFloats);
  for (int64_t d0 = 0; d0 < dim; d0 += kQueryBlock, q += q_next) {
    FloatVec even[kRows], odd[kRows];
    for (int r = 0; r < kRows; ++r) even[r] = odd[r] = hn::Zero(kFloats);
    for (int64_t word = 0; word < kQueryBlock / 2; word += kLanes) {
      WordVec v[kLanes];
      for (int64_t t = 0; t < kLanes; ++t) v[t] = load_words(rows[t] + d0 + 2 * word);
      transpose(v);
      for (int64_t w = 0; w < kLanes; ++w) {
        const FloatVec e = even_floats(v[w]), o = odd_floats(v[w]);
        for (int r = 0; r < kRows; ++r) {
          const float* x = q + r * kQueryBlock + 2 * (word + w);
          even[r] = hn::MulAdd(e, hn::Set(kFloats, x[0]), even[r]);
          odd[r] = hn::MulAdd(o, hn::Set(kFloats, x[1]), odd[r]);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) sum[r] = hn::Add(sum[r], hn::Add(even[r], odd[r]));
  }
  for (int r = 0; r < kRows; ++r) hn::StoreU(sum[r], kFloats, scores + r * kChunk);
}

// Every other token in [begin, end) of kLoads vectors of words; sums of a vector's even columns,
// then of its odd ones.
template <int kRows, int kLoads>
HWY_INLINE void few_values_chain(const Rows<Bf16>& values, Feed& feed, int64_t begin, int64_t end,
                                 int64_t column, const float* p,
                                 FloatVec (&sum)[kRows][2 * kLoads]) {
  for (auto& row : sum)
    for (auto& x : row) x = hn::Zero(kFloats);
  for (int64_t t = begin; t < end; t += 2) {
    const Bf16* v = values[t] + column;
    FloatVec x[2 * kLoads];
    for (int i = 0; i < kLoads; ++i) {
      const WordVec words = load_words(v + 2 * i * kLanes);
      x[2 * i] = even_floats(words);
      x[2 * i + 1] = odd_floats(words);
    }
    if (column % (Feed::kPiece / 2) == 0) feed.ask();
    for (int r = 0; r < kRows; ++r) {
      const FloatVec weight = hn::Set(kFloats, p[r * kChunk + t]);
      for (int i = 0; i < 2 * kLoads; ++i) sum[r][i] = hn::MulAdd(x[i], weight, sum[r][i]);
    }
  }
}

// Even and odd columns side by side, and added to those at `to`.
HWY_INLINE void add_interleaved(FloatVec even, FloatVec odd, float* to) {
  FloatVec lower, upper;
  if constexpr (kLanes >= 8) {
    HWY_ALIGN constexpr int32_t kOrder[16] = {
        0, kLanes / 2,     1, kLanes / 2 + 1, 2, kLanes / 2 + 2, 3, kLanes / 2 + 3,
        4, kLanes / 2 + 4, 5, kLanes / 2 + 5, 6, kLanes / 2 + 6, 7, kLanes / 2 + 7};
    const auto order = hn::SetTableIndices(kFloats, kOrder);
    lower = hn::TableLookupLanes(hn::ConcatLowerLower(kFloats, odd, even), order);
    upper = hn::TableLookupLanes(hn::ConcatUpperUpper(kFloats, odd, even), order);
  } else {
    lower = hn::InterleaveLower(kFloats, even, odd);
    upper = hn::InterleaveUpper(kFloats, even, odd);
  }
  hn::StoreU(hn::Add(hn::LoadU(kFloats, to), lower), kFloats, to);
  hn::StoreU(hn::Add(hn::LoadU(kFloats, to + kLanes), upper), kFloats, to + kLanes);
}

// acc[r] += p[r] V over tokens [begin, end) of the block; `width` is a multiple of 2 kLanes.
template <int kRows, int kLoads>
HWY_INLINE void value_few_columns(const Rows<Bf16>& values, Feed& feed, int64_t begin, int64_t end,
                                  int64_t column, const float* p, float* acc, int64_t width) {
  for (; column + 2 * kLoads * kLanes <= width; column += 2 * kLoads * kLanes) {
    FloatVec even[kRows][2 * kLoads], odd[kRows][2 * kLoads];
    few_values_chain<kRows, kLoads>(values, feed, (begin + 1) / 2 * 2, end, column, p, even);
    few_values_chain<kRows, kLoads>(values, feed, begin / 2 * 2 + 1, end, column, p, odd);
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < kLoads; ++i)
        add_interleaved(hn::Add(even[r][2 * i], odd[r][2 * i]),
                        hn::Add(even[r][2 * i + 1], odd[r][2 * i + 1]),
                        acc + r * width + column + 2 * i * kLanes);
  }
  if constexpr (kLoads > 1)
    value_few_columns<kRows, kLoads / 2>(values, feed, begin, end, column, p, acc, width);
}

// `rows` is at most kFewRows.
template <int kRows>
HWY_INLINE void score_few_rows(const Rows<Bf16>& keys, Feed& feed, const float* q, int64_t q_next,
                               int64_t dim, float* scores, int64_t rows) {
  if (rows == kRows) {
    for (int64_t t = 0; t < kBlock; t += kLanes)
      score_few_tokens<kRows>(keys, feed, t, q, q_next, dim, scores + t);
  } else if constexpr (kRows > 1) {
    score_few_rows<kRows - 1>(keys, feed, q, q_next, dim, scores, rows);
  }
}
template <int kRows>
HWY_INLINE void value_few_rows(const Rows<Bf16>& values, Feed& feed, int64_t begin, int64_t end,
                               const float* p, float* acc, int64_t width, int64_t rows) {
  constexpr int kLoads = kLanes / 4 / (kRows > 2 ? 2 : 1);
  if (rows == kRows)
    value_few_columns<kRows, kLoads>(values, feed, begin, end, 0, p, acc, width);
  else if constexpr (kRows > 1)
    value_few_rows<kRows - 1>(values, feed, begin, end, p, acc, width, rows);
}

#endif  // vectors

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
