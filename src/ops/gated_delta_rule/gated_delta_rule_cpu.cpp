#include "ops/gated_delta_rule/gated_delta_rule_cpu.h"

#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gated_delta_rule/gated_delta_rule_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because their code is per target too.
#include <hwy/cache_control.h>
#include <hwy/contrib/math/math-inl.h>

#include "ops/rms_norm/rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr int64_t kMaxKeyDim = 256;  // kMaxDeltaKeyDim
// Tokens whose inputs are widened and normalised at a time. Between them a task changes from one
// block of state to the next, 32 KiB from the second-level cache: few tokens, and that costs more
// than q and k (32 KiB with Dk = 128) cost by pushing the state out of the first level.
constexpr int64_t kTokens = 32;
// Columns of state that read_state() asks memory for ahead of time: 4 KiB of a full block.
constexpr int64_t kColumnsAhead = 16;

// The inputs of a token some tokens ahead: each lies on a page of its own, where no hardware looks
// ahead. Asked for one token at a time while another is worked on.
struct Ahead {
  const char *q = nullptr, *k = nullptr, *v = nullptr;  // null: there is none
  int64_t row_bytes = 0, key_bytes = 0, value_bytes = 0;
};

HWY_INLINE void ask_for(const Ahead& ahead, int64_t token) {
  if (ahead.q == nullptr) return;
  const int64_t at = token * ahead.row_bytes;
  for (int64_t i = 0; i < ahead.key_bytes; i += 64) {
    hwy::Prefetch(ahead.q + at + i);
    hwy::Prefetch(ahead.k + at + i);
  }
  for (int64_t i = 0; i < ahead.value_bytes; i += 64) hwy::Prefetch(ahead.v + at + i);
}

// Inputs and outputs of up to kTokens tokens for one block of rows.
struct Block {
  Ahead ahead;
  HWY_ALIGN float q[kTokens * kMaxKeyDim];
  HWY_ALIGN float k[kTokens * kMaxKeyDim];
  HWY_ALIGN float v[kTokens * kDeltaRows];
  HWY_ALIGN float y[kTokens * kDeltaRows];
  HWY_ALIGN float decay[kTokens];
  HWY_ALIGN float beta[kTokens];
};

template <class T>
HWY_INLINE void widen(const T* from, float* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(load_floats(from + i), kFloats, to + i);
  for (; i < n; ++i) to[i] = to_float(from[i]);
}

template <class T>
HWY_INLINE void narrow(const float* from, T* to, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_floats(hn::LoadU(kFloats, from + i), to + i);
  for (; i < n; ++i) to[i] = from_float<T>(from[i]);
}

// y = x / sqrt(sum(x^2) + 1e-6) * scale.
template <class T>
HWY_INLINE void unit_row(const T* x, float scale, float* y, int64_t n) {
  const float factor = scale / std::sqrt(sum_of_squares(x, n) + 1e-6f);
  const FloatVec f = hn::Set(kFloats, factor);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreU(hn::Mul(load_floats(x + i), f), kFloats, y + i);
  for (; i < n; ++i) y[i] = to_float(x[i]) * factor;
}

// log(1 + exp(x)); beyond 20 it is x to the last bit.
HWY_INLINE FloatVec softplus(FloatVec x) {
  const FloatVec limit = hn::Set(kFloats, 20.0f);
  const FloatVec soft = hn::Log1p(kFloats, hn::Exp(kFloats, hn::Min(x, limit)));
  return hn::IfThenElse(hn::Gt(x, limit), x, soft);
}

// b.decay and b.beta hold a and b of n tokens, and get the gates. Lanes beyond n hold anything.
HWY_INLINE void open_gates(float a_log, float dt_bias, Block& b, int64_t n) {
  const FloatVec rate = hn::Neg(hn::Exp(kFloats, hn::Set(kFloats, a_log)));
  const FloatVec bias = hn::Set(kFloats, dt_bias), one = hn::Set(kFloats, 1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const FloatVec a = hn::Load(kFloats, b.decay + i), x = hn::Load(kFloats, b.beta + i);
    hn::Store(hn::Exp(kFloats, hn::Mul(rate, softplus(hn::Add(a, bias)))), kFloats, b.decay + i);
    // Highway's exponential wraps around far above the overflow at 88.7.
    const FloatVec e = hn::Exp(kFloats, hn::Min(hn::Neg(x), hn::Set(kFloats, 100.0f)));
    hn::Store(hn::Div(one, hn::Add(one, e)), kFloats, b.beta + i);
  }
}

// The same where b.decay holds the logarithm of the decay, and b.beta beta itself.
HWY_INLINE void open_given_gates(Block& b, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes)
    hn::Store(hn::Exp(kFloats, hn::Load(kFloats, b.decay + i)), kFloats, b.decay + i);
}

// q and k of n tokens, widened and divided by their norms.
template <class T>
void read_keys(const GatedDeltaRuleParams& p, int64_t k_head, int64_t first, int64_t n, Block& b) {
  const int64_t key_width = p.k_heads * p.k_dim, row = 2 * key_width + p.v_heads * p.v_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(p.k_dim));
  for (int64_t i = 0; i < n; ++i) {
    const T* x = static_cast<const T*>(p.qkv) + (first + i) * row + k_head * p.k_dim;
    unit_row(x, scale, b.q + i * p.k_dim, p.k_dim);
    unit_row(x + key_width, 1.0f, b.k + i * p.k_dim, p.k_dim);
  }
}

// decay and beta of a value head.
template <class T>
void read_gates(const GatedDeltaRuleParams& p, int64_t head, int64_t first, int64_t n, Block& b) {
  for (int64_t i = n; i < kTokens; ++i) b.decay[i] = b.beta[i] = 0.0f;
  if (p.log_decay != nullptr) {
    for (int64_t i = 0; i < n; ++i) {
      b.decay[i] = p.log_decay[(first + i) * p.v_heads + head];
      b.beta[i] = p.beta[(first + i) * p.v_heads + head];
    }
    return open_given_gates(b, n);
  }
  for (int64_t i = 0; i < n; ++i) {
    const T* gates = static_cast<const T*>(p.gates) + (first + i) * p.gates_row + head;
    b.decay[i] = to_float(gates[p.a_column]);
    b.beta[i] = to_float(gates[p.b_column]);
  }
  open_gates(p.a_log[head], p.dt_bias[head], b, n);
}

// Rows [first_row, first_row + width) of v, and the gates, of a value head.
template <class T>
void read_values(const GatedDeltaRuleParams& p, int64_t head, int64_t first_row, int64_t width,
                 int64_t first, int64_t n, Block& b) {
  const int64_t key_width = p.k_heads * p.k_dim, row = 2 * key_width + p.v_heads * p.v_dim;
  for (int64_t i = 0; i < n; ++i) {
    const T* x = static_cast<const T*>(p.qkv) + (first + i) * row;
    widen(x + 2 * key_width + head * p.v_dim + first_row, b.v + i * kDeltaRows, width);
  }
  read_gates<T>(p, head, first, n, b);
}

// Column i of the state for all rows: s = s decay + delta k, and its share of the two sums. `next`
// is the next token's k, or null.
template <bool kNext, class D, int64_t kVecs>
HWY_INLINE void advance_column(D d, float* column, float k, float q, const float* next,
                               hn::Vec<D> decay, const hn::Vec<D> (&delta)[kVecs],
                               hn::Vec<D> (&y)[kVecs], hn::Vec<D> (&seen)[kVecs]) {
  const auto kk = hn::Set(d, k), qq = hn::Set(d, q), nn = hn::Set(d, kNext ? *next : 0.0f);
  for (int64_t v = 0; v < kVecs; ++v) {
    float* at = column + v * static_cast<int64_t>(hn::MaxLanes(d));
    const auto s = hn::MulAdd(delta[v], kk, hn::Mul(hn::LoadU(d, at), decay));
    hn::StoreU(s, d, at);
    y[v] = hn::MulAdd(s, qq, y[v]);
    if (kNext) seen[v] = hn::MulAdd(s, nn, seen[v]);
  }
}

// One pass over the columns of the state: what the token writes, its output, and (kNext) what the
// next token will read, S k. Every sum is a chain of the even and one of the odd columns.
template <bool kNext, class D, int64_t kVecs>
HWY_INLINE void advance(D d, float* state, int64_t stride, int64_t dim, const float* q,
                        const float* k, hn::Vec<D> decay, const hn::Vec<D> (&delta)[kVecs],
                        hn::Vec<D> (&y)[kVecs], hn::Vec<D> (&seen)[kVecs]) {
  hn::Vec<D> y_odd[kVecs], seen_odd[kVecs];
  for (int64_t v = 0; v < kVecs; ++v) y[v] = y_odd[v] = seen[v] = seen_odd[v] = hn::Zero(d);
  const float* next = k + dim;
  for (int64_t i = 0; i < dim; i += 2, state += 2 * stride) {
    advance_column<kNext, D, kVecs>(d, state, k[i], q[i], next + i, decay, delta, y, seen);
    advance_column<kNext, D, kVecs>(d, state + stride, k[i + 1], q[i + 1], next + i + 1, decay,
                                    delta, y_odd, seen_odd);
  }
  for (int64_t v = 0; v < kVecs; ++v) {
    y[v] = hn::Add(y[v], y_odd[v]);
    seen[v] = hn::Add(seen[v], seen_odd[v]);
  }
}

// S k of the first token, in the order of advance().
template <class D, int64_t kVecs>
HWY_INLINE void read_state(D d, const float* state, int64_t stride, int64_t dim, const float* k,
                           hn::Vec<D> (&seen)[kVecs]) {
  const int64_t lanes = hn::MaxLanes(d);
  hn::Vec<D> odd[kVecs];
  for (int64_t v = 0; v < kVecs; ++v) seen[v] = odd[v] = hn::Zero(d);
  for (int64_t i = 0; i < dim; i += 2) {
    const auto even_k = hn::Set(d, k[i]), odd_k = hn::Set(d, k[i + 1]);
    for (int64_t v = 0; v < kVecs; ++v) {
      const float* at = state + i * stride + v * lanes;
      hwy::Prefetch(at + kColumnsAhead * stride);
      hwy::Prefetch(at + (kColumnsAhead + 1) * stride);
      seen[v] = hn::MulAdd(hn::LoadU(d, at), even_k, seen[v]);
      odd[v] = hn::MulAdd(hn::LoadU(d, at + stride), odd_k, odd[v]);
    }
  }
  for (int64_t v = 0; v < kVecs; ++v) seen[v] = hn::Add(seen[v], odd[v]);
}

// The rows [first, first + kVecs vectors) of a block, over n tokens. `stride`: from a column of the
// state to the next.
template <class D, int64_t kVecs>
HWY_INLINE void walk_rows(D d, float* state, int64_t stride, int64_t dim, Block& b, int64_t first,
                          int64_t n) {
  const int64_t lanes = hn::MaxLanes(d);
  hn::Vec<D> seen[kVecs], delta[kVecs], y[kVecs];
  read_state<D, kVecs>(d, state + first, stride, dim, b.k, seen);
  for (int64_t t = 0; t < n; ++t) {
    const auto decay = hn::Set(d, b.decay[t]), beta = hn::Set(d, b.beta[t]);
    const float* v_row = b.v + t * kDeltaRows + first;
    for (int64_t v = 0; v < kVecs; ++v) {
      const auto value = hn::LoadU(d, v_row + v * lanes);
      delta[v] = hn::Mul(hn::NegMulAdd(seen[v], decay, value), beta);
    }
    const float *q = b.q + t * dim, *k = b.k + t * dim;
    if (kVecs > 1) ask_for(b.ahead, t);
    if (t + 1 < n) {
      advance<true, D, kVecs>(d, state + first, stride, dim, q, k, decay, delta, y, seen);
    } else {
      advance<false, D, kVecs>(d, state + first, stride, dim, q, k, decay, delta, y, seen);
    }
    for (int64_t v = 0; v < kVecs; ++v)
      hn::StoreU(y[v], d, b.y + t * kDeltaRows + first + v * lanes);
  }
}

// All rows of a block: as many vectors as the registers hold sums for, then one, then single rows.
// Each row's arithmetic is its own, so that this changes no bits.
HWY_INLINE void walk_block(float* state, int64_t stride, int64_t width, int64_t dim, Block& b,
                           int64_t n) {
  constexpr int64_t kVecs = kLanes == 8 ? 2 : 4;
  int64_t first = 0;
  for (; first + kVecs * kLanes <= width; first += kVecs * kLanes)
    walk_rows<FloatTag, kVecs>(kFloats, state, stride, dim, b, first, n);
  for (; first + kLanes <= width; first += kLanes)
    walk_rows<FloatTag, 1>(kFloats, state, stride, dim, b, first, n);
  using OneTag = hn::CappedTag<float, 1>;
  for (; first < width; ++first) walk_rows<OneTag, 1>(OneTag(), state, stride, dim, b, first, n);
}

// What the block will need of the tokens from `first` on; q and k only if `with_keys`.
template <class T>
HWY_INLINE Ahead look_ahead(const GatedDeltaRuleParams& p, int64_t k_head, int64_t head,
                            int64_t first_row, int64_t first, bool with_keys) {
  const int64_t key_width = p.k_heads * p.k_dim, row = 2 * key_width + p.v_heads * p.v_dim;
  const T* x = static_cast<const T*>(p.qkv) + first * row;
  const auto bytes = [](const T* at) { return reinterpret_cast<const char*>(at); };
  return {.q = bytes(x + k_head * p.k_dim),
          .k = bytes(x + key_width + k_head * p.k_dim),
          .v = bytes(x + 2 * key_width + head * p.v_dim + first_row),
          .row_bytes = row * static_cast<int64_t>(sizeof(T)),
          .key_bytes = with_keys ? p.k_dim * static_cast<int64_t>(sizeof(T)) : 0,
          .value_bytes = kDeltaRows * static_cast<int64_t>(sizeof(T))};
}

template <class T>
void run_block(const GatedDeltaRuleParams& p, int64_t head, int64_t first_row, int64_t first,
               int64_t n, float* state, Block& b) {
  const int64_t left = p.v_dim - first_row, width = left < kDeltaRows ? left : kDeltaRows;
  read_values<T>(p, head, first_row, width, first, n, b);
  walk_block(state, p.plain_state ? p.v_dim : width, width, p.k_dim, b, n);
  for (int64_t i = 0; i < n; ++i) {
    T* y = static_cast<T*>(p.y) + ((first + i) * p.v_heads + head) * p.v_dim + first_row;
    narrow(b.y + i * kDeltaRows, y, width);
  }
}

void clear_state(const GatedDeltaRuleParams& p, float* state, int64_t rows) {
  if (!p.plain_state) {
    std::memset(state, 0, static_cast<size_t>(rows * p.k_dim) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < p.k_dim; ++i)
    std::memset(state + i * p.v_dim, 0, static_cast<size_t>(rows) * sizeof(float));
}

template <class T>
void run_task(const GatedDeltaRuleParams& p, const GatedDeltaRuleTask& task) {
  const int64_t k_head = delta_key_head(p, task.head), step = delta_head_step(p);
  Block b;
  for (int64_t t = task.begin; t < task.end; t += kTokens) {
    const int64_t n = task.end - t < kTokens ? task.end - t : kTokens;
    int64_t head = task.head, first_row = task.first_row;
    // Memory answers while q and k are prepared.
    hwy::Prefetch(p.state + delta_state_offset(p, task.slot, head, first_row));
    read_keys<T>(p, k_head, t, n, b);
    for (int64_t block = 0; block < task.num_blocks; ++block) {
      const int64_t left = p.v_dim - first_row, rows = left < kDeltaRows ? left : kDeltaRows;
      float* state = p.state + delta_state_offset(p, task.slot, head, first_row);
      if (task.is_fresh && t == task.begin) clear_state(p, state, rows);
      b.ahead =
          t + n < task.end ? look_ahead<T>(p, k_head, head, first_row, t + n, block == 0) : Ahead();
      run_block<T>(p, head, first_row, t, n, state, b);
      first_row += rows;
      if (first_row == p.v_dim) head += step, first_row = 0;
    }
  }
}

void GatedDeltaRule(const GatedDeltaRuleParams& params, const GatedDeltaRuleTask& task) {
  switch (params.type) {
    case FloatType::kF32:
      return run_task<float>(params, task);
    case FloatType::kF16:
      return run_task<F16>(params, task);
    case FloatType::kBf16:
      return run_task<Bf16>(params, task);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(GatedDeltaRule);
void gated_delta_rule_cpu(const GatedDeltaRuleParams& params, const GatedDeltaRuleTask& task) {
  HWY_DYNAMIC_DISPATCH(GatedDeltaRule)(params, task);
}
}  // namespace quire::ops
#endif
