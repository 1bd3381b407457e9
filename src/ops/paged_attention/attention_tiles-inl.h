// The arithmetic of attention, in tiles that stay in registers; read once per target, by
// paged_attention_cpu.cpp only.
#include "ops/cpu/highway.h"
#include "ops/cpu/prefetch.h"
#include "ops/cpu/tanh-inl.h"
#include "ops/layout/kv_codes-inl.h"
#include "ops/paged_attention/paged_attention_cpu.h"

#if defined(QUIRE_OPS_ATTENTION_TILES_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_ATTENTION_TILES_
#undef QUIRE_OPS_ATTENTION_TILES_
#else
#define QUIRE_OPS_ATTENTION_TILES_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr int64_t kChunk = kAttentionChunk;
constexpr int64_t kBlock = kAttentionBlock;
constexpr float kNegativeInfinity = -__builtin_inff();

using WordTag = UintTag;
using WordVec = hn::Vec<WordTag>;

HWY_INLINE float exp2_nonpositive(float x) {
  return hn::GetLane(exp2_nonpositive(hn::Set(kFloats, x)));
}

template <class T>
constexpr bool kIsCode = sizeof(T) == 1;

// Rows of one head in the pool: that of token t, counted from the start of a block of 32, is at
// base + slots[t] * stride.
template <class V>
struct Rows {
  const V* base;
  const int64_t* slots;
  int64_t stride;

  HWY_INLINE const V* operator[](int64_t t) const { return base + slots[t] * stride; }
};

// Tokens whose rows will be read soon, asked for in the order of memory while others are read: the
// hardware does not foresee one head's short runs, and many requests at once are no use. Without
// tokens: nothing is.
struct Feed {
  const char* base = nullptr;      // of the tokens' rows: some heads, one after the other
  const int64_t* slots = nullptr;  // of the tokens
  int64_t stride = 0, bytes = 0;   // in bytes, of a token and of all its heads
  int64_t token = 0, tokens = 0;   // the next one, and where to stop
  int64_t at = 0, piece = 0;       // bytes of it that were asked for, and of what is next

  // A row is asked for in pieces of up to so many bytes: of more at once, requests would wait for
  // one another.
  static constexpr int64_t kPiece = 256;
  // The next piece. To be called for every piece of a row that is read.
  HWY_INLINE void ask() {
    if (token >= tokens) return;
    const char* from = base + slots[token] * stride + at;
    const int64_t n = bytes - at < piece ? bytes - at : piece;
    for (int64_t i = 0; i < n; i += 64) prefetch_into_l2(from + i);
    at += piece;
    if (at < bytes) return;
    at = 0;
    ++token;
  }
  // What is left of them, shared among this tile and those that follow, `tiles` in all.
  HWY_INLINE void ask_beside(int64_t tiles) {
    if (token >= tokens) return;
    const int64_t all = (tokens - token) * ((bytes + piece - 1) / piece);
    for (int64_t i = (all + tiles - 1) / tiles; i > 0; --i) ask();
  }
};

// ---- keys: a block of 32 tokens is transposed to [D][32] floats, tokens in lanes ----

// A word is what one lane of the transposition moves: one float, or two neighbouring bfloat16.
template <class T>
constexpr int64_t kPerWord = hwy::IsSame<T, Bf16>() ? 2 : 1;

#if HWY_TARGET != HWY_SCALAR
// A square of 32-bit words: rows in, columns out.
HWY_INLINE void transpose(WordVec (&v)[kLanes]) {
  if constexpr (kLanes >= 8) {
    const WordTag d;
    const hn::Repartition<uint64_t, WordTag> wide;
    WordVec w[kLanes];
    for (int64_t i = 0; i < kLanes; i += 4) {  // 4 x 4 within each 128-bit block
      const auto a = hn::BitCast(wide, hn::InterleaveLower(d, v[i], v[i + 1]));
      const auto b = hn::BitCast(wide, hn::InterleaveUpper(d, v[i], v[i + 1]));
      const auto e = hn::BitCast(wide, hn::InterleaveLower(d, v[i + 2], v[i + 3]));
      const auto f = hn::BitCast(wide, hn::InterleaveUpper(d, v[i + 2], v[i + 3]));
      w[i] = hn::BitCast(d, hn::InterleaveLower(wide, a, e));
      w[i + 1] = hn::BitCast(d, hn::InterleaveUpper(wide, a, e));
      w[i + 2] = hn::BitCast(d, hn::InterleaveLower(wide, b, f));
      w[i + 3] = hn::BitCast(d, hn::InterleaveUpper(wide, b, f));
    }
    for (int64_t j = 0; j < 4; ++j) {  // the blocks themselves
      if constexpr (kLanes == 16) {
        const auto lo = hn::ConcatLowerLower(d, w[8 + j], w[j]);
        const auto lo2 = hn::ConcatLowerLower(d, w[12 + j], w[4 + j]);
        const auto hi = hn::ConcatUpperUpper(d, w[8 + j], w[j]);
        const auto hi2 = hn::ConcatUpperUpper(d, w[12 + j], w[4 + j]);
        v[j] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(lo2), lo);
        v[4 + j] = hn::OddEvenBlocks(lo2, hn::SwapAdjacentBlocks(lo));
        v[8 + j] = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(hi2), hi);
        v[12 + j] = hn::OddEvenBlocks(hi2, hn::SwapAdjacentBlocks(hi));
      } else {
        v[j] = hn::ConcatLowerLower(d, w[4 + j], w[j]);
        v[4 + j] = hn::ConcatUpperUpper(d, w[4 + j], w[j]);
      }
    }
  }
}

template <class T>
HWY_INLINE WordVec load_words(const T* p) {
  if constexpr (kPerWord<T> == 2) {
    return hn::BitCast(WordTag(), hn::LoadU(hn::Repartition<uint16_t, WordTag>(), &p->bits));
  } else {
    return hn::BitCast(WordTag(), load_floats(p));
  }
}

// kLanes tokens from word `word` on, kLanes words of each; `out` is keys + first token.
template <class T>
HWY_INLINE void pack_square(const Rows<T>& rows, int64_t token, int64_t word, float* out) {
  WordVec v[kLanes];
  for (int64_t t = 0; t < kLanes; ++t) {
    v[t] = load_words(rows[token + t] + word * kPerWord<T>);
  }
  transpose(v);
  for (int64_t w = 0; w < kLanes; ++w) {
    float* to = out + (word + w) * kPerWord<T> * kBlock;
    if constexpr (kPerWord<T> == 2) {
      hn::StoreU(hn::BitCast(kFloats, hn::ShiftLeft<16>(v[w])), kFloats, to);
      const auto odd = hn::And(v[w], hn::Set(WordTag(), 0xFFFF0000u));
      hn::StoreU(hn::BitCast(kFloats, odd), kFloats, to + kBlock);
    } else {
      hn::StoreU(hn::BitCast(kFloats, v[w]), kFloats, to);
    }
  }
}

#endif  // vectors

// keys[d][t] = rows[t][d] for 32 tokens.
template <class T>
void pack_keys(const Rows<T>& rows, Feed& feed, int64_t dim, float* keys) {
#if HWY_TARGET != HWY_SCALAR
  const int64_t words = dim / kPerWord<T>;
  const int64_t pieces = (dim * static_cast<int64_t>(sizeof(T)) + Feed::kPiece - 1) / Feed::kPiece;
  if (kLanes >= 8 && words >= kLanes) {
    for (int64_t t = 0; t < kBlock; t += kLanes) {
      for (int64_t i = 0; i < kLanes * pieces; ++i) feed.ask();
      int64_t word = 0;
      for (; word + kLanes <= words; word += kLanes) pack_square(rows, t, word, keys + t);
      // The last square overlaps the one before.
      if (word < words) pack_square(rows, t, words - kLanes, keys + t);
    }
    return;
  }
#endif
  for (int64_t t = 0; t < kBlock; ++t) {
    feed.ask();
    for (int64_t d = 0; d < dim; ++d) keys[d * kBlock + t] = to_float(rows[t][d]);
  }
}

// ---- products: per 32 k an even chain and an odd chain from 0, then their sum ----

// Rows of a tile, of two vectors each: their sums share the loads of the vectors.
constexpr int kTileRows = HWY_ARCH_ARM || kLanes == 16 ? 8 : 6;
// Sums that the registers hold beside what they are made of. Where there are not twice as many as a
// tile's, the odd chain comes after the even one.
constexpr int kMaxSums = HWY_ARCH_ARM || kLanes == 16 ? 24 : 12;

// One k to the rows' sums; rows of `a` are kStride floats apart.
template <int kRows, int kVecs, int64_t kStride>
HWY_INLINE void add_step(const float* a, const float* b, FloatVec (&sum)[kRows][kVecs]) {
  FloatVec x[kVecs];
  for (int i = 0; i < kVecs; ++i) x[i] = hn::LoadU(kFloats, b + i * kLanes);
  for (int r = 0; r < kRows; ++r) {
    const FloatVec weight = hn::Set(kFloats, a[r * kStride]);
    for (int i = 0; i < kVecs; ++i) sum[r][i] = hn::MulAdd(x[i], weight, sum[r][i]);
  }
}

// The even and the odd chain over k in [begin, end).
template <int kRows, int kVecs, int64_t kStride>
HWY_INLINE void chains(const float* a, const float* b, int64_t b_stride, int64_t begin, int64_t end,
                       FloatVec (&even)[kRows][kVecs], FloatVec (&odd)[kRows][kVecs]) {
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < kVecs; ++i) even[r][i] = odd[r][i] = hn::Zero(kFloats);
  if constexpr (2 * kRows * kVecs <= kMaxSums) {
    int64_t k = begin;
    if (k % 2 != 0) {
      add_step<kRows, kVecs, kStride>(a + k, b + k * b_stride, odd);
      ++k;
    }
    for (; k + 2 <= end; k += 2) {
      add_step<kRows, kVecs, kStride>(a + k, b + k * b_stride, even);
      add_step<kRows, kVecs, kStride>(a + k + 1, b + (k + 1) * b_stride, odd);
    }
    if (k < end) add_step<kRows, kVecs, kStride>(a + k, b + k * b_stride, even);
  } else {
    for (int64_t k = (begin + 1) / 2 * 2; k < end; k += 2)
      add_step<kRows, kVecs, kStride>(a + k, b + k * b_stride, even);
    for (int64_t k = begin / 2 * 2 + 1; k < end; k += 2)
      add_step<kRows, kVecs, kStride>(a + k, b + k * b_stride, odd);
  }
}

// c[r] (or 0 if `first`) += the sum of a[r][k] b[k] over k in [begin, end), at most 32 of them and
// all 32 if kWhole. A function of its own, so that nothing around it takes registers from the sums;
// with limits that are not constants, they go through memory.
template <int kRows, int kVecs, int64_t kStride, bool kWhole>
HWY_NOINLINE void add_products(const float* a, const float* b, int64_t b_stride, int64_t begin,
                               int64_t end, bool first, float* c, int64_t c_stride) {
  FloatVec even[kRows][kVecs], odd[kRows][kVecs];
  chains<kRows, kVecs, kStride>(a, b, b_stride, kWhole ? 0 : begin, kWhole ? 32 : end, even, odd);
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVecs; ++i) {
      float* to = c + r * c_stride + i * kLanes;
      const FloatVec before = first ? hn::Zero(kFloats) : hn::LoadU(kFloats, to);
      hn::StoreU(hn::Add(before, hn::Add(even[r][i], odd[r][i])), kFloats, to);
    }
  }
}
template <int kRows, int kVecs, int64_t kStride>
HWY_INLINE void add_any_products(const float* a, const float* b, int64_t b_stride, int64_t begin,
                                 int64_t end, bool first, float* c, int64_t c_stride) {
  if (begin == 0 && end == 32)
    add_products<kRows, kVecs, kStride, true>(a, b, b_stride, begin, end, first, c, c_stride);
  else
    add_products<kRows, kVecs, kStride, false>(a, b, b_stride, begin, end, first, c, c_stride);
}

// Rows of the tiles that take what larger ones leave.
constexpr int smaller_tile(int rows) { return rows > 4 ? 4 : rows / 2; }

// Queries lie in blocks of 32 of d: [D / 32][rows][32].
constexpr int64_t kQueryBlock = 32;

// scores[r][0..32) = q_r . k_t for the queries from `q` on, whose next 32 of d are `q_next` on.
template <int kRows>
HWY_INLINE void score_rows(const float* q, int64_t q_next, const float* keys, int64_t dim,
                           float* scores, int64_t rows, Feed& feed) {
  constexpr int kVecs = kLanes == 1 ? 1 : 2;
  for (; rows >= kRows; rows -= kRows) {
    feed.ask_beside(rows / kRows);
    for (int64_t t = 0; t < kBlock; t += kVecs * kLanes) {
      for (int64_t d = 0; d < dim; d += kQueryBlock) {
        add_any_products<kRows, kVecs, kQueryBlock>(
            q + d / kQueryBlock * q_next, keys + d * kBlock + t, kBlock, 0,
            d + kQueryBlock < dim ? kQueryBlock : dim - d, d == 0, scores + t, kChunk);
      }
    }
    q += kRows * kQueryBlock;
    scores += kRows * kChunk;
  }
  if constexpr (kRows > 1)
    score_rows<smaller_tile(kRows)>(q, q_next, keys, dim, scores, rows, feed);
}

// acc[r] += p[r] V over tokens [begin, end) of the block. Tokens outside are not read: 0 times
// infinity would not be 0.
template <int kRows>
HWY_INLINE void value_rows(const float* values, int64_t begin, int64_t end, const float* p,
                           float* acc, int64_t width, int64_t rows, Feed& feed) {
  for (; rows >= kRows; rows -= kRows) {
    feed.ask_beside(rows / kRows);
    int64_t d = 0;
    for (; d + 2 * kLanes <= width; d += 2 * kLanes)
      add_any_products<kRows, 2, kChunk>(p, values + d, width, begin, end, false, acc + d, width);
    if (d < width)
      add_any_products<kRows, 1, kChunk>(p, values + d, width, begin, end, false, acc + d, width);
    p += kRows * kChunk;
    acc += kRows * width;
  }
  if constexpr (kRows > 1)
    value_rows<smaller_tile(kRows)>(values, begin, end, p, acc, width, rows, feed);
}

// ---- softmax of one row within a chunk, over its visible keys [begin, end) ----

HWY_INLINE hn::Mask<FloatTag> visible_lanes(int64_t t, int64_t begin, int64_t end) {
  const IntTag di;
  const auto lane = hn::Iota(di, static_cast<int32_t>(t));
  const auto from = hn::Gt(lane, hn::Set(di, static_cast<int32_t>(begin - 1)));
  const auto to = hn::Lt(lane, hn::Set(di, static_cast<int32_t>(end)));
  return hn::RebindMask(kFloats, hn::And(from, to));
}

HWY_INLINE bool all_visible(int64_t t, int64_t begin, int64_t end) {
  return begin <= t && t + kLanes <= end;
}

HWY_INLINE float max_visible(const float* scores, int64_t begin, int64_t end) {
  const FloatVec lowest = hn::Set(kFloats, kNegativeInfinity);
  FloatVec peak = lowest;
  for (int64_t t = begin / kLanes * kLanes; t < end; t += kLanes) {
    FloatVec s = hn::LoadU(kFloats, scores + t);
    if (!all_visible(t, begin, end)) s = hn::IfThenElse(visible_lanes(t, begin, end), s, lowest);
    peak = hn::Max(peak, s);
  }
  return hn::GetLane(hn::MaxOfLanes(kFloats, peak));
}

HWY_INLINE void cap_scores(const AttentionKernelParams& p, float* scores, int64_t begin,
                           int64_t end) {
  const FloatVec scale = hn::Set(kFloats, p.softcap_scale), cap = hn::Set(kFloats, p.softcap);
  for (int64_t t = begin / kLanes * kLanes; t < end; t += kLanes) {
    const FloatVec s = hn::LoadU(kFloats, scores + t);
    hn::StoreU(hn::Mul(tanh_floats(hn::Mul(s, scale)), cap), kFloats, scores + t);
  }
}

// Scores become score * scale - slope * |distance|; `at` is the query's column.
HWY_INLINE void bias_scores(float slope, float scale, float at, float* scores, int64_t begin,
                            int64_t end) {
  const FloatVec slopes = hn::Set(kFloats, slope), scales = hn::Set(kFloats, scale);
  for (int64_t t = begin / kLanes * kLanes; t < end; t += kLanes) {
    const FloatVec column = hn::Iota(kFloats, static_cast<float>(t));
    const FloatVec distance = hn::Abs(hn::Sub(hn::Set(kFloats, at), column));
    const FloatVec s = hn::Mul(hn::LoadU(kFloats, scores + t), scales);
    hn::StoreU(hn::NegMulAdd(slopes, distance, s), kFloats, scores + t);
  }
}

// The storage that probabilities are rounded to.
template <class T>
struct ProbabilityOf {
  using Type = T;
};
template <>
struct ProbabilityOf<F8> {
  using Type = Bf16;
};
template <>
struct ProbabilityOf<I8> {
  using Type = float;  // to be made integers
};

// Scores of codes become scores of keys.
HWY_INLINE void scale_scores(const float* scales, float* scores, int64_t begin, int64_t end) {
  for (int64_t t = begin / kLanes * kLanes; t < end; t += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(kFloats, scores + t), hn::LoadU(kFloats, scales + t)), kFloats,
               scores + t);
}

// The same of a 16-bit query's two parts, the lower one's scores beside the higher one's.
HWY_INLINE void join_scores(const float* scales, float query, float* scores, int64_t begin,
                            int64_t end) {
  const FloatVec factor = hn::Set(kFloats, query), high = hn::Set(kFloats, 256.0f);
  for (int64_t t = begin / kLanes * kLanes; t < end; t += kLanes) {
    const FloatVec sum =
        hn::MulAdd(hn::LoadU(kFloats, scores + t), high, hn::LoadU(kFloats, scores + kChunk + t));
    const FloatVec scale = hn::Mul(hn::LoadU(kFloats, scales + t), factor);
    hn::StoreU(hn::Mul(sum, scale), kFloats, scores + t);
  }
}

// Turns weights >= 0 into 16-bit integers, the higher byte in their place and the lower one beside
// it, and returns what they stand for: weight / integer.
HWY_INLINE float split_probabilities(float* weights, int64_t begin, int64_t end) {
  const int64_t first = begin / 16 * 16;
  auto peak = hn::Zero(UintTag());
  for (int64_t t = first; t < end; t += kLanes)
    peak = larger_bits(peak, hn::LoadU(kFloats, weights + t));
  const CodeScale scale = scale_of(largest(peak), kMaxProbability16);
  const FloatVec inverse = hn::Set(kFloats, scale.inverse);
  const IntTag di;
  for (int64_t t = first; t < end; t += kLanes) {
    auto code = hn::NearestInt(hn::Mul(hn::LoadU(kFloats, weights + t), inverse));
    if (scale.inverse == 0) code = hn::Zero(di);
    hn::StoreU(hn::ConvertTo(kFloats, hn::ShiftRight<8>(code)), kFloats, weights + t);
    hn::StoreU(hn::ConvertTo(kFloats, hn::And(code, hn::Set(di, 255))), kFloats,
               weights + kChunk + t);
  }
  return scale.scale;
}

// Turns scores into p = 2^((s - peak) * exponent_scale), times the values' scales if T is a code,
// rounded to T's type of probabilities, and returns the sum of the unrounded p. It has 16 virtual
// lanes (lane = token mod 16), folded in halves, whatever the vector length.
template <class T>
HWY_INLINE float softmax_row(float exponent_scale, float peak, const float* value_scales,
                             float* scores, int64_t begin, int64_t end) {
  const FloatVec peaks = hn::Set(kFloats, peak), scale = hn::Set(kFloats, exponent_scale);
  constexpr int64_t kParts = 16 / kLanes;
  FloatVec part[kParts];
  for (auto& x : part) x = hn::Zero(kFloats);
  for (int64_t t0 = begin / 16 * 16; t0 < end; t0 += 16) {
    for (int64_t i = 0; i < kParts; ++i) {
      const int64_t t = t0 + i * kLanes;
      const FloatVec s = hn::LoadU(kFloats, scores + t);
      FloatVec e = exp2_nonpositive(hn::Mul(hn::Sub(s, peaks), scale));
      if (!all_visible(t, begin, end)) e = hn::IfThenElseZero(visible_lanes(t, begin, end), e);
      part[i] = hn::Add(part[i], e);
      if constexpr (kIsCode<T>) {
        e = hn::Mul(e, hn::LoadU(kFloats, value_scales + t));
        // The scale of a token that is not visible may be anything.
        if (!all_visible(t, begin, end)) e = hn::IfThenElseZero(visible_lanes(t, begin, end), e);
      }
      hn::StoreU(round_floats<typename ProbabilityOf<T>::Type>(e), kFloats, scores + t);
    }
  }
  HWY_ALIGN float sums[16];
  for (int64_t i = 0; i < kParts; ++i) hn::Store(part[i], kFloats, sums + i * kLanes);
  for (int64_t half = 8; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

// The same of so few rows that values are used as they come from the pool.
constexpr int kDirectRows = kLanes == 16 ? 4 : 2;

template <int kRows, int kVecs, class T>
HWY_INLINE void direct_token(const T* v, const float* p, FloatVec (&sum)[kRows][kVecs]) {
  FloatVec x[kVecs];
  for (int i = 0; i < kVecs; ++i) x[i] = load_floats(v + i * kLanes);
  for (int r = 0; r < kRows; ++r) {
    const FloatVec weight = hn::Set(kFloats, p[r * kChunk]);
    for (int i = 0; i < kVecs; ++i) sum[r][i] = hn::MulAdd(x[i], weight, sum[r][i]);
  }
}

template <int kRows, int kVecs, class T>
HWY_INLINE void direct_columns(const Rows<T>& values, Feed& feed, int64_t begin, int64_t end,
                               int64_t column, const float* p, float* acc, int64_t width) {
  for (; column + kVecs * kLanes <= width; column += kVecs * kLanes) {
    FloatVec even[kRows][kVecs], odd[kRows][kVecs];
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < kVecs; ++i) even[r][i] = odd[r][i] = hn::Zero(kFloats);
    int64_t t = begin;
    if (t % 2 != 0) {
      direct_token(values[t] + column, p + t, odd);
      ++t;
    }
    for (; t + 2 <= end; t += 2) {
      constexpr int64_t kColumns = Feed::kPiece / static_cast<int64_t>(sizeof(T));
      for (int i = 0; column % kColumns == 0 && i < 2; ++i) feed.ask();
      direct_token(values[t] + column, p + t, even);
      direct_token(values[t + 1] + column, p + t + 1, odd);
    }
    if (t < end) direct_token(values[t] + column, p + t, even);
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kVecs; ++i) {
        float* to = acc + r * width + column + i * kLanes;
        hn::StoreU(hn::Add(hn::LoadU(kFloats, to), hn::Add(even[r][i], odd[r][i])), kFloats, to);
      }
    }
  }
  if constexpr (kVecs > 1)
    direct_columns<kRows, kVecs / 2>(values, feed, begin, end, column, p, acc, width);
}

template <int kRows, class T>
HWY_INLINE void value_direct_rows(const Rows<T>& values, Feed& feed, int64_t begin, int64_t end,
                                  const float* p, float* acc, int64_t width, int64_t rows) {
  for (; rows >= kRows; rows -= kRows) {
    direct_columns<kRows, 2 * kDirectRows / kRows>(values, feed, begin, end, 0, p, acc, width);
    p += kRows * kChunk;
    acc += kRows * width;
  }
  if constexpr (kRows > 1)
    value_direct_rows<kRows / 2>(values, feed, begin, end, p, acc, width, rows);
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
