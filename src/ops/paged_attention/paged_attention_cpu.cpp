#include "ops/paged_attention/paged_attention_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/paged_attention/paged_attention_cpu.cpp"
#include "ops/highway.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr int64_t kChunk = kAttentionChunk;
constexpr int64_t kBlock = kAttentionBlock;
constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kNegativeInfinity = -__builtin_inff();

// Rows that share the loads of one key or value vector. Their accumulators fill the registers: with
// 32 of them 4 rows x 2 vectors x (even chain, odd chain, sum); with 16, half of that.
constexpr int64_t kRowBlock = kLanes == 16 ? 4 : 2;

using WordTag = UintTag;
using WordVec = hn::Vec<WordTag>;

// 2^x for x <= 0: exactly 1 at 0, 0 below -125, NaN for NaN. x = n + f with |f| <= 1/2; the
// polynomial is a relative minimax fit of 2^f (2e-9; 8e-8 as evaluated in float).
HWY_INLINE FloatVec exp2_nonpositive(FloatVec x) {
  const FloatVec magic = hn::Set(kFloats, 12582912.0f);  // 1.5 * 2^23: the sum's low bits are n
  const FloatVec shifted = hn::Add(x, magic);
  const FloatVec f = hn::Sub(x, hn::Sub(shifted, magic));
  FloatVec y = hn::Set(kFloats, 0x1.41fbbcp-13f);
  y = hn::MulAdd(y, f, hn::Set(kFloats, 0x1.5f3e54p-10f));
  y = hn::MulAdd(y, f, hn::Set(kFloats, 0x1.3b2d4cp-7f));
  y = hn::MulAdd(y, f, hn::Set(kFloats, 0x1.c6aee8p-5f));
  y = hn::MulAdd(y, f, hn::Set(kFloats, 0x1.ebfbdcp-3f));
  y = hn::MulAdd(y, f, hn::Set(kFloats, 0x1.62e43p-1f));
  y = hn::MulAdd(y, f, hn::Set(kFloats, 1.0f));
  const UintTag du;
  const auto power =
      hn::ShiftLeft<23>(hn::Add(hn::BitCast(du, shifted), hn::Set(du, uint32_t{127})));
  y = hn::Mul(y, hn::BitCast(kFloats, power));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(kFloats, -125.0f)), y);
}

HWY_INLINE float exp2_nonpositive(float x) {
  return hn::GetLane(exp2_nonpositive(hn::Set(kFloats, x)));
}

// tanh to about 1 ulp: near 0 the odd polynomial of Moshier's Cephes (tanhf), else by 2^x.
HWY_INLINE FloatVec tanh_floats(FloatVec x) {
  const FloatVec one = hn::Set(kFloats, 1.0f);
  const FloatVec size = hn::Abs(x), z = hn::Mul(x, x);
  FloatVec y = hn::Set(kFloats, -5.70498872745e-3f);
  y = hn::MulAdd(y, z, hn::Set(kFloats, 2.06390887954e-2f));
  y = hn::MulAdd(y, z, hn::Set(kFloats, -5.37397155531e-2f));
  y = hn::MulAdd(y, z, hn::Set(kFloats, 1.33314422036e-1f));
  y = hn::MulAdd(y, z, hn::Set(kFloats, -3.33332819422e-1f));
  y = hn::MulAdd(hn::Mul(y, z), x, x);
  const FloatVec t = exp2_nonpositive(hn::Mul(size, hn::Set(kFloats, -2.0f * kLog2E)));
  const FloatVec far = hn::CopySign(hn::Div(hn::Sub(one, t), hn::Add(one, t)), x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(kFloats, 0.625f)), y, far);
}

// Rows of one head in the pool: that of token t, counted from the start of a block of 32, is at
// base + slots[t] * stride.
template <class V>
struct Rows {
  const V* base;
  const int64_t* slots;
  int64_t stride;

  HWY_INLINE const V* operator[](int64_t t) const { return base + slots[t] * stride; }
};

// The rows to be read next, asked for a line at a time while these are read: the hardware does not
// foresee one head's short runs, and many requests at once are no use. Without base: nothing is.
template <class T>
struct Ahead {
  Rows<T> rows{nullptr, nullptr, 0};

  HWY_INLINE void ask(int64_t t, int64_t column) const {
    if (rows.base != nullptr) __builtin_prefetch(rows[t] + column, /*rw=*/0, /*locality=*/2);
  }
};

// ---- keys: a block of 32 tokens is transposed to [D][32] floats, tokens in lanes ----

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

// A word is what one lane of the transposition moves: one float, or two neighbouring bfloat16.
template <class T>
constexpr int64_t kPerWord = 1;
template <>
constexpr int64_t kPerWord<Bf16> = 2;

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
HWY_INLINE void pack_square(const Rows<T>& rows, const Ahead<T>& ahead, int64_t token, int64_t word,
                            float* out) {
  WordVec v[kLanes];
  for (int64_t t = 0; t < kLanes; ++t) {
    ahead.ask(token + t, word * kPerWord<T>);
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
void pack_keys(const Rows<T>& rows, const Ahead<T>& ahead, int64_t dim, float* keys) {
#if HWY_TARGET != HWY_SCALAR
  const int64_t words = dim / kPerWord<T>;
  if (kLanes >= 8 && words >= kLanes) {
    for (int64_t t = 0; t < kBlock; t += kLanes) {
      int64_t word = 0;
      for (; word + kLanes <= words; word += kLanes) pack_square(rows, ahead, t, word, keys + t);
      // The last square overlaps the one before.
      if (word < words) pack_square(rows, ahead, t, words - kLanes, keys + t);
    }
    return;
  }
#endif
  for (int64_t t = 0; t < kBlock; ++t) {
    ahead.ask(t, 0);
    for (int64_t d = 0; d < dim; ++d) keys[d * kBlock + t] = to_float(rows[t][d]);
  }
}

// scores[r][0..32) = q_r . k_t: per 32 of d an even chain and an odd chain from 0, then their sum.
template <int kRows>
HWY_INLINE void score_tile(const float* q, const float* keys, int64_t dim, float* scores) {
  for (int64_t t = 0; t < kBlock; t += 2 * kLanes) {
    FloatVec sum[kRows][2];
    for (auto& row : sum) row[0] = row[1] = hn::Zero(kFloats);
    for (int64_t d0 = 0; d0 < dim; d0 += 32) {
      FloatVec even[kRows][2], odd[kRows][2];
      for (int r = 0; r < kRows; ++r)
        even[r][0] = even[r][1] = odd[r][0] = odd[r][1] = hn::Zero(kFloats);
      const int64_t end = d0 + 32 < dim ? d0 + 32 : dim;
      for (int64_t d = d0; d < end; d += 2) {
        const float* k = keys + d * kBlock + t;
        const FloatVec e0 = hn::LoadU(kFloats, k), e1 = hn::LoadU(kFloats, k + kLanes);
        for (int r = 0; r < kRows; ++r) {
          const FloatVec x = hn::Set(kFloats, q[r * dim + d]);
          even[r][0] = hn::MulAdd(e0, x, even[r][0]);
          even[r][1] = hn::MulAdd(e1, x, even[r][1]);
        }
        const FloatVec o0 = hn::LoadU(kFloats, k + kBlock);
        const FloatVec o1 = hn::LoadU(kFloats, k + kBlock + kLanes);
        for (int r = 0; r < kRows; ++r) {
          const FloatVec x = hn::Set(kFloats, q[r * dim + d + 1]);
          odd[r][0] = hn::MulAdd(o0, x, odd[r][0]);
          odd[r][1] = hn::MulAdd(o1, x, odd[r][1]);
        }
      }
      for (int r = 0; r < kRows; ++r)
        for (int i = 0; i < 2; ++i) sum[r][i] = hn::Add(sum[r][i], hn::Add(even[r][i], odd[r][i]));
    }
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < 2; ++i)
        hn::StoreU(sum[r][i], kFloats, scores + r * kChunk + t + i * kLanes);
  }
}

template <int kRows>
HWY_INLINE void score_rows(const float* q, const float* keys, int64_t dim, float* scores,
                           int64_t rows) {
  for (; rows >= kRows; rows -= kRows) {
    score_tile<kRows>(q, keys, dim, scores);
    q += kRows * dim;
    scores += kRows * kChunk;
  }
  if constexpr (kRows > 1) score_rows<kRows / 2>(q, keys, dim, scores, rows);
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

// Turns scores into p, rounded to T; sets m (in units of log2) and l. The sum has 16 virtual lanes
// (lane = token mod 16), folded in halves, whatever the vector length.
template <class T>
HWY_INLINE void softmax_row(const AttentionKernelParams& p, float* scores, int64_t begin,
                            int64_t end, float* m, float* l) {
  if (p.softcap > 0) cap_scores(p, scores, begin, end);
  const float peak = max_visible(scores, begin, end);
  const FloatVec peaks = hn::Set(kFloats, peak), scale = hn::Set(kFloats, p.exponent_scale);
  constexpr int64_t kParts = 16 / kLanes;
  HWY_ALIGN float sums[16] = {};
  FloatVec part[kParts];
  for (auto& x : part) x = hn::Zero(kFloats);
  for (int64_t t0 = begin / 16 * 16; t0 < end; t0 += 16) {
    for (int64_t i = 0; i < kParts; ++i) {
      const int64_t t = t0 + i * kLanes;
      const FloatVec s = hn::LoadU(kFloats, scores + t);
      FloatVec e = exp2_nonpositive(hn::Mul(hn::Sub(s, peaks), scale));
      if (!all_visible(t, begin, end)) e = hn::IfThenElseZero(visible_lanes(t, begin, end), e);
      part[i] = hn::Add(part[i], e);
      hn::StoreU(round_floats<T>(e), kFloats, scores + t);
    }
  }
  for (int64_t i = 0; i < kParts; ++i) hn::Store(part[i], kFloats, sums + i * kLanes);
  for (int64_t half = 8; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  *m = peak * p.exponent_scale;
  *l = sums[0];
}

// ---- values ----

template <int kRows, int kVecs, class V>
HWY_INLINE void value_token(const V* v, const float* p, FloatVec (&chain)[kRows][kVecs]) {
  FloatVec x[kVecs];
  for (int i = 0; i < kVecs; ++i) x[i] = load_floats(v + i * kLanes);
  for (int r = 0; r < kRows; ++r) {
    const FloatVec weight = hn::Set(kFloats, p[r * kChunk]);
    for (int i = 0; i < kVecs; ++i) chain[r][i] = hn::MulAdd(x[i], weight, chain[r][i]);
  }
}

// Columns from `column` on of some rows of the result: acc[r] += p[r] V over tokens [begin, end) of
// the block, in a chain of the even tokens and one of the odd, from 0. Tokens outside are not read:
// 0 times infinity would not be 0.
template <int kRows, int kVecs, class V, class T>
HWY_INLINE void value_tile(const Rows<V>& values, const Ahead<T>& ahead, int64_t begin, int64_t end,
                           int64_t column, const float* p, float* acc, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(T);
  FloatVec even[kRows][kVecs], odd[kRows][kVecs];
  for (int r = 0; r < kRows; ++r)
    for (int i = 0; i < kVecs; ++i) even[r][i] = odd[r][i] = hn::Zero(kFloats);
  int64_t t = begin;
  if (t % 2 != 0) {
    value_token(values[t] + column, p + t, odd);
    ++t;
  }
  for (; t + 2 <= end; t += 2) {
    for (int64_t at = 0; at < kVecs * kLanes; at += kLine) {
      ahead.ask(t, column + at);
      ahead.ask(t + 1, column + at);
    }
    value_token(values[t] + column, p + t, even);
    value_token(values[t + 1] + column, p + t + 1, odd);
  }
  if (t < end) value_token(values[t] + column, p + t, even);
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVecs; ++i) {
      float* a = acc + r * width + column + i * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(kFloats, a), hn::Add(even[r][i], odd[r][i])), kFloats, a);
    }
  }
}

template <int kRows, int kVecs, class V, class T>
HWY_INLINE void value_columns(const Rows<V>& values, const Ahead<T>& ahead, int64_t begin,
                              int64_t end, int64_t column, const float* p, float* acc,
                              int64_t width) {
  for (; column + kVecs * kLanes <= width; column += kVecs * kLanes)
    value_tile<kRows, kVecs>(values, ahead, begin, end, column, p, acc, width);
  if constexpr (kVecs > 1)
    value_columns<kRows, kVecs / 2>(values, ahead, begin, end, column, p, acc, width);
}

// n rows of the result.
template <int kRows, class V, class T>
HWY_INLINE void value_rows(const Rows<V>& values, const Ahead<T>& ahead, int64_t begin, int64_t end,
                           const float* p, float* acc, int64_t width, int64_t n) {
  for (; n >= kRows; n -= kRows) {
    value_columns<kRows, 2 * kRowBlock / kRows>(values, ahead, begin, end, 0, p, acc, width);
    p += kRows * kChunk;
    acc += kRows * width;
  }
  if constexpr (kRows > 1) value_rows<kRows / 2>(values, ahead, begin, end, p, acc, width, n);
}

constexpr int64_t kInOrder[kBlock] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                      11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                      22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

// ---- one item ----

// A chunk's result, or the running total of chunks, for all rows of an item.
struct Result {
  Result(float* memory, int64_t rows, int64_t width)
      : acc(memory), m(memory + rows * width), l(m + rows) {}
  float* acc;  // [rows][width]
  float* m;    // [rows] in units of log2
  float* l;    // [rows]; 0: the row has seen no key
};

template <class T>
struct Worker {
  Worker(const AttentionKernelParams& params, const AttentionItem& it, const AttentionScratch& s)
      : p(params), item(it), scratch(s) {
    group = p.heads / p.kv_heads;
    head_rows = item.tokens * group;
    rows = item.kv_heads * head_rows;
    width = (p.value_dim + 15) / 16 * 16;
  }

  // The keys that token i of the item sees.
  int64_t key_begin(int64_t i) const {
    const int64_t at = item.position + i - p.window_left;
    return p.window_left < 0 || at < 0 ? 0 : at;
  }
  int64_t key_end(int64_t i) const {
    const int64_t end = item.position + i + 1;
    return end < item.context ? end : item.context;
  }

  // Offset of row r in q, in heads.
  int64_t head_of_row(int64_t r) const {
    const int64_t head = r / head_rows, token = r % head_rows / group, g = r % group;
    return (item.token + token) * p.heads + (item.kv_head + head) * group + g;
  }

  template <class Q>
  void load_queries(const Q* q) const {
    for (int64_t r = 0; r < rows; ++r) {
      const Q* from = q + head_of_row(r) * p.key_dim;
      float* to = scratch.queries + r * p.key_dim;
      int64_t d = 0;
      for (; d + kLanes <= p.key_dim; d += kLanes)
        hn::StoreU(load_floats(from + d), kFloats, to + d);
      for (; d < p.key_dim; ++d) to[d] = to_float(from[d]);
    }
  }

  // A chunk's tokens that some row sees, from its start, and their slots. Other tokens of their
  // blocks of 32 get a neighbour's, so that reading them is harmless.
  struct Chunk {
    int64_t start, begin, end;
    int64_t* slots;

    int64_t first_block() const { return begin / kBlock * kBlock; }
  };
  Chunk find_slots(int64_t chunk) const {
    const int64_t start = chunk * kChunk, lo = key_begin(0), hi = key_end(item.tokens - 1);
    const Chunk c{start, lo > start ? lo - start : 0, hi < start + kChunk ? hi - start : kChunk,
                  scratch.slots + chunk % 2 * kChunk};
    for (int64_t t = c.begin; t < c.end;) {
      const int64_t block = (start + t) / p.block_size, offset = (start + t) % p.block_size;
      const int64_t stop = t + p.block_size - offset < c.end ? t + p.block_size - offset : c.end;
      const int64_t slot = item.block_table[block] * p.block_size + offset - t;
      for (; t < stop; ++t) c.slots[t] = slot + t;
    }
    for (int64_t t = c.first_block(); t < c.begin; ++t) c.slots[t] = c.slots[c.begin];
    for (int64_t t = c.end; t % kBlock != 0; ++t) c.slots[t] = c.slots[c.end - 1];
    return c;
  }

  // Head h's keys or values of the chunk's block at t.
  Rows<T> keys_at(const Chunk& c, int64_t t, int64_t h) const {
    const T* base = static_cast<const T*>(p.k) + (item.kv_head + h) * p.key_dim;
    return {base, c.slots + t, p.kv_heads * p.key_dim};
  }
  Rows<T> values_at(const Chunk& c, int64_t t, int64_t h) const {
    const T* base = static_cast<const T*>(p.v) + (item.kv_head + h) * p.value_dim;
    return {base, c.slots + t, p.kv_heads * p.value_dim};
  }

  // Tokens [first, last) of the item see some key of the block at `start`; [all_first, all_last)
  // all.
  struct Sight {
    int64_t first, last, all_first, all_last;
  };
  static int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }
  Sight sight(int64_t start) const {
    const int64_t n = item.tokens, window = p.window_left, at = item.position;
    Sight s;
    s.first = clamp(start - at, 0, n);
    s.all_first = clamp(start + kBlock - 1 - at, 0, n);
    s.last = window < 0 ? n : clamp(start + kBlock + window - at, s.first, n);
    s.all_last = window < 0 ? n : clamp(start + window - at + 1, 0, n);
    if (start + kBlock > item.context) s.all_first = s.all_last = s.last;
    if (s.all_first > s.last) s.all_first = s.last;
    if (s.all_last < s.all_first) s.all_last = s.all_first;
    return s;
  }

  void score_block(const Chunk& c, int64_t t) const {
    const Sight s = sight(c.start + t);
    const int64_t n = (s.last - s.first) * group;
    if (n <= 0) return;
    for (int64_t h = 0; h < item.kv_heads; ++h) {
      const bool more = t + kBlock < c.end;
      const Ahead<T> ahead{more ? keys_at(c, t + kBlock, h) : values_at(c, c.first_block(), h)};
      pack_keys(keys_at(c, t, h), ahead, p.key_dim, scratch.keys);
      const int64_t row = h * head_rows + s.first * group;
      score_rows<kRowBlock>(scratch.queries + row * p.key_dim, scratch.keys, p.key_dim,
                            scratch.scores + row * kChunk + t, n);
    }
  }

  void softmax_rows(int64_t start, const Result& out) const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t i = r % head_rows / group;
      const int64_t lo = clamp(key_begin(i) - start, 0, kChunk);
      const int64_t hi = clamp(key_end(i) - start, 0, kChunk);
      out.m[r] = kNegativeInfinity;
      out.l[r] = 0;
      if (lo < hi) softmax_row<T>(p, scratch.scores + r * kChunk, lo, hi, out.m + r, out.l + r);
    }
  }

  // Adds a block's values to all rows of head h that see some of it, those that see all at once.
  template <class V>
  HWY_INLINE void add_values(const Rows<V>& values, const Ahead<T>& ahead, const Chunk& c,
                             int64_t t, int64_t h, const Result& out) const {
    const int64_t start = c.start + t;
    const Sight s = sight(start);
    for (int64_t i = s.first; i < s.last;) {
      const bool all = i == s.all_first && s.all_last > i;
      const int64_t next = all ? s.all_last : i + 1;
      const int64_t lo = all ? 0 : clamp(key_begin(i) - start, 0, kBlock);
      const int64_t hi = all ? kBlock : clamp(key_end(i) - start, 0, kBlock);
      const int64_t row = h * head_rows + i * group;
      if (lo < hi)
        value_rows<kRowBlock>(values, ahead, lo, hi, scratch.scores + row * kChunk + t,
                              out.acc + row * width, width, (next - i) * group);
      i = next;
    }
  }

  void value_block(const Chunk& c, const Chunk* next, int64_t t, const Result& out) const {
    for (int64_t h = 0; h < item.kv_heads; ++h) {
      Ahead<T> ahead;
      if (t + kBlock < c.end) {
        ahead.rows = values_at(c, t + kBlock, h);
      } else if (next != nullptr) {
        ahead.rows = keys_at(*next, next->first_block(), h);
      }
      const Rows<T> values = values_at(c, t, h);
      // Values that many rows need are widened once.
      if (head_rows <= kRowBlock && width == p.value_dim) {
        add_values(values, ahead, c, t, h, out);
      } else {
        widen_values(values, ahead);
        add_values(Rows<float>{scratch.values, kInOrder, width}, Ahead<T>(), c, t, h, out);
      }
    }
  }

  void widen_values(const Rows<T>& from, const Ahead<T>& ahead) const {
    for (int64_t t = 0; t < kBlock; ++t) {
      const T* v = from[t];
      float* to = scratch.values + t * width;
      int64_t d = 0;
      for (; d + kLanes <= p.value_dim; d += kLanes) {
        ahead.ask(t, d);
        hn::StoreU(load_floats(v + d), kFloats, to + d);
      }
      for (; d < width; ++d) to[d] = d < p.value_dim ? to_float(v[d]) : 0.0f;
    }
  }

  void attend_chunk(const Chunk& c, const Chunk* next, const Result& out) const {
    for (int64_t t = c.first_block(); t < c.end; t += kBlock) score_block(c, t);
    softmax_rows(c.start, out);
    for (int64_t i = 0; i < rows * width; ++i) out.acc[i] = 0;
    for (int64_t t = c.first_block(); t < c.end; t += kBlock) value_block(c, next, t, out);
  }

  void start(const Result& total, int64_t first, int64_t n) const {
    for (int64_t r = first; r < first + n; ++r) {
      total.m[r] = p.sinks ? p.sinks[head_of_row(r) % p.heads] * kLog2E : kNegativeInfinity;
      total.l[r] = p.sinks ? 1.0f : 0.0f;
      for (int64_t d = 0; d < width; ++d) total.acc[r * width + d] = 0;
    }
  }

  void merge(const Result& total, const Result& chunk, int64_t first, int64_t n) const {
    for (int64_t r = first; r < first + n; ++r) {
      if (chunk.l[r] == 0) continue;  // this row sees nothing of the chunk
      const float before = total.m[r], now = chunk.m[r];
      const float m = before > now ? before : now;
      const float keep = exp2_nonpositive(before - m), add = exp2_nonpositive(now - m);
      const FloatVec keeps = hn::Set(kFloats, keep), adds = hn::Set(kFloats, add);
      total.m[r] = m;
      total.l[r] = hn::GetLane(hn::MulAdd(hn::Set(kFloats, chunk.l[r]), adds,
                                          hn::Mul(hn::Set(kFloats, total.l[r]), keeps)));
      float* to = total.acc + r * width;
      const float* from = chunk.acc + r * width;
      for (int64_t d = 0; d < width; d += kLanes) {
        const FloatVec kept = hn::Mul(hn::LoadU(kFloats, to + d), keeps);
        hn::StoreU(hn::MulAdd(hn::LoadU(kFloats, from + d), adds, kept), kFloats, to + d);
      }
    }
  }

  template <class Q>
  void finish(const Result& total, int64_t first, int64_t n, Q* out) const {
    for (int64_t r = first; r < first + n; ++r) {
      const float* acc = total.acc + r * width;
      Q* to = out + head_of_row(r) * p.value_dim;
      // A row that saw nothing has acc = 0.
      const FloatVec l = hn::Set(kFloats, total.l[r] == 0 ? 1.0f : total.l[r]);
      int64_t d = 0;
      for (; d + kLanes <= p.value_dim; d += kLanes)
        store_floats(hn::Div(hn::LoadU(kFloats, acc + d), l), to + d);
      if (d < p.value_dim)
        store_floats(hn::Div(hn::LoadU(kFloats, acc + d), l), to + d, p.value_dim - d);
    }
  }

  void finish(const Result& total, int64_t first, int64_t n) const {
    switch (p.q_type) {
      case FloatType::kF32:
        return finish(total, first, n, static_cast<float*>(p.out));
      case FloatType::kF16:
        return finish(total, first, n, static_cast<F16*>(p.out));
      case FloatType::kBf16:
        return finish(total, first, n, static_cast<Bf16*>(p.out));
    }
  }

  void run() const {
    switch (p.q_type) {
      case FloatType::kF32:
        load_queries(static_cast<const float*>(p.q));
        break;
      case FloatType::kF16:
        load_queries(static_cast<const F16*>(p.q));
        break;
      case FloatType::kBf16:
        load_queries(static_cast<const Bf16*>(p.q));
        break;
    }
    const int64_t size = chunk_result_size(p, rows);
    const Result total(scratch.total, rows, width);
    const bool whole = item.partials < 0;
    if (whole) start(total, 0, rows);
    Chunk now = item.chunks > 0 ? find_slots(item.chunk) : Chunk{};
    for (int64_t c = 0; c < item.chunks; ++c) {
      const bool more = c + 1 < item.chunks;
      const Chunk next = more ? find_slots(item.chunk + c + 1) : Chunk{};
      float* memory = whole ? scratch.chunk : scratch.partials + item.partials + c * size;
      const Result chunk(memory, rows, width);
      attend_chunk(now, more ? &next : nullptr, chunk);
      if (whole) merge(total, chunk, 0, rows);
      now = next;
    }
    if (whole) finish(total, 0, rows);
  }

  void merge_head(int64_t head) const {
    const int64_t size = chunk_result_size(p, rows), first = head * head_rows;
    const Result total(scratch.total, rows, width);
    start(total, first, head_rows);
    for (int64_t c = 0; c < item.chunks; ++c)
      merge(total, Result(scratch.partials + item.partials + c * size, rows, width), first,
            head_rows);
    finish(total, first, head_rows);
  }

  const AttentionKernelParams& p;
  const AttentionItem& item;
  const AttentionScratch& scratch;
  int64_t group, head_rows, rows, width;
};

void PagedAttention(const AttentionKernelParams& params, const AttentionItem& item,
                    const AttentionScratch& scratch) {
  switch (params.kv_type) {
    case FloatType::kF32:
      return Worker<float>(params, item, scratch).run();
    case FloatType::kF16:
      return Worker<F16>(params, item, scratch).run();
    case FloatType::kBf16:
      return Worker<Bf16>(params, item, scratch).run();
  }
}

void PagedAttentionMerge(const AttentionKernelParams& params, const AttentionItem& item,
                         int64_t kv_head, const AttentionScratch& scratch) {
  Worker<float>(params, item, scratch).merge_head(kv_head);
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(PagedAttention);
void paged_attention_cpu(const AttentionKernelParams& params, const AttentionItem& item,
                         const AttentionScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(PagedAttention)(params, item, scratch);
}
HWY_EXPORT(PagedAttentionMerge);
void paged_attention_merge_cpu(const AttentionKernelParams& params, const AttentionItem& item,
                               int64_t kv_head, const AttentionScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(PagedAttentionMerge)(params, item, kv_head, scratch);
}
}  // namespace quire::ops
#endif
