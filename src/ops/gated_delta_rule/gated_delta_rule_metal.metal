#include "ops/metal/math.metal.h"
// first
#include "ops/gated_delta_rule/gated_delta_rule_metal.h"

using namespace metal;
using namespace quire;
using namespace quire::ops;

constant constexpr int kThreads = 256, kSimdgroups = kThreads / kLanes;
constant constexpr int kRows = 32, kRowLanes = kThreads / kRows;  // rows of Dv, and threads of each
constant constexpr int kMostKeyDim = 256;

// One token's inputs: q and k as they are, zeros behind them, and what their factors come from.
struct Token {
  float q[kMostKeyDim], k[kMostKeyDim];
  float q_squares[kSimdgroups], k_squares[kSimdgroups];
};

template <typename T>
inline void stage(constant GatedDeltaRuleMetalParams& p, const device T* row, int key_head,
                  threadgroup Token& token, int thread_index) {
  const device T* q = row + key_head * p.k_dim;
  const device T* k = q + p.k_heads * p.k_dim;
  const bool exists = thread_index < p.k_dim;
  const float a = exists ? float(q[thread_index]) : 0.0f;
  const float b = exists ? float(k[thread_index]) : 0.0f;
  token.q[thread_index] = a;
  token.k[thread_index] = b;
  const float q_sum = simd_sum(a * a), k_sum = simd_sum(b * b);
  if (thread_index % kLanes != 0) return;
  token.q_squares[thread_index / kLanes] = q_sum;
  token.k_squares[thread_index / kLanes] = k_sum;
}

inline float inverse_norm(threadgroup const float* squares) {
  float sum = 0;
  for (int i = 0; i < kSimdgroups; ++i) sum += squares[i];
  return 1.0f / precise::sqrt(sum + 1e-6f);
}

// The eight threads of a row.
inline float row_sum(float x) {
  x += simd_shuffle_xor(x, ushort(1));
  x += simd_shuffle_xor(x, ushort(2));
  return x + simd_shuffle_xor(x, ushort(4));
}

// The first column of a thread's i-th four.
inline int column_of(int i, int part) { return 4 * (kRowLanes * i + part); }

// S = decay S, and the thread's part of S k.
template <int kVectors>
inline float decay_and_see(thread float4 (&m)[kVectors], float decay, threadgroup const float* keys,
                           int part) {
  float seen = 0;
  for (int i = 0; i < kVectors; ++i) {
    m[i] *= decay;
    for (int j = 0; j < 4; ++j) seen = fma(m[i][j], keys[column_of(i, part) + j], seen);
  }
  return seen;
}
// S = S + change k, and the thread's part of S q.
template <int kVectors>
inline float change_and_ask(thread float4 (&m)[kVectors], float change,
                            threadgroup const float* keys, threadgroup const float* queries,
                            int part) {
  float y = 0;
  for (int i = 0; i < kVectors; ++i)
    for (int j = 0; j < 4; ++j) {
      const int at = column_of(i, part) + j;
      m[i][j] = fma(change, keys[at], m[i][j]);
      y = fma(m[i][j], queries[at], y);
    }
  return y;
}

// A threadgroup walks 32 rows of one value head's state over a sequence's tokens.
template <typename T, int kWidth>
[[kernel]] void gated_delta_rule(constant GatedDeltaRuleMetalParams& p [[buffer(kDeltaParams)]],
                                 const device int* cu_seqlens [[buffer(kDeltaCuSeqlens)]],
                                 const device int* positions [[buffer(kDeltaPositions)]],
                                 const device int* state_slots [[buffer(kDeltaStateSlots)]],
                                 const device T* qkv [[buffer(kDeltaQkv)]],
                                 const device T* gates [[buffer(kDeltaGates)]],
                                 const device float* a_log [[buffer(kDeltaALog)]],
                                 const device float* dt_bias [[buffer(kDeltaDtBias)]],
                                 device float* state [[buffer(kDeltaState)]],
                                 device T* y [[buffer(kDeltaY)]],
                                 uint3 group [[threadgroup_position_in_grid]],
                                 uint thread_in_group [[thread_index_in_threadgroup]]) {
  constexpr int kVectors = kWidth / (4 * kRowLanes);
  threadgroup Token tokens[2];
  const int thread_index = int(thread_in_group), part = thread_index % kRowLanes;
  const int head = int(group.y), begin = cu_seqlens[group.z], end = cu_seqlens[group.z + 1];
  const int64_t slot = state_slots[group.z];
  if (begin == end || slot < 0) return;
  const int v_row = int(group.x) * kRows + thread_index / kRowLanes;
  const int key_head = p.heads_take_turns != 0 ? head % p.k_heads : head / (p.v_heads / p.k_heads);
  const bool exists = v_row < p.v_dim, is_fresh = positions[begin] == 0;
  const int64_t row_size = 2 * int64_t(p.k_heads) * p.k_dim + int64_t(p.v_heads) * p.v_dim;
  const device T* values = qkv + 2 * p.k_heads * p.k_dim + head * p.v_dim + v_row;
  device float* own = state + ((slot * p.v_heads + head) * p.v_dim + v_row) * p.k_dim;
  float4 m[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    const int at = column_of(i, part);
    m[i] = float4(0.0f);
    if (exists && !is_fresh && at < p.k_dim) m[i] = *(const device float4*)(own + at);
  }
  const float rate = -precise::exp(a_log[head]), bias = dt_bias[head];
  const float q_scale = 1.0f / precise::sqrt(float(p.k_dim));
  stage<T>(p, qkv + begin * row_size, key_head, tokens[begin % 2], thread_index);
  for (int t = begin; t < end; ++t) {
    const device T* own_gates = gates + t * p.gates_row;
    const float a = float(own_gates[p.a_column + head]);
    const float beta = sigmoid(float(own_gates[p.b_column + head]));
    const float decay = precise::exp(rate * softplus(a + bias));
    const float v = exists ? float(values[t * row_size]) : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t + 1 < end)
      stage<T>(p, qkv + (t + 1) * row_size, key_head, tokens[(t + 1) % 2], thread_index);
    threadgroup const Token& token = tokens[t % 2];
    const float q_factor = inverse_norm(token.q_squares) * q_scale;
    const float k_factor = inverse_norm(token.k_squares);
    const float seen = row_sum(decay_and_see<kVectors>(m, decay, token.k, part)) * k_factor;
    const float change = (v - seen) * beta * k_factor;
    const float out =
        row_sum(change_and_ask<kVectors>(m, change, token.k, token.q, part)) * q_factor;
    if (exists && part == 0) y[(int64_t(t) * p.v_heads + head) * p.v_dim + v_row] = T(out);
  }
  for (int i = 0; i < kVectors; ++i) {
    const int at = column_of(i, part);
    if (exists && at < p.k_dim) *(device float4*)(own + at) = m[i];
  }
}

#define QUIRE_DELTA(type)                                                     \
  QUIRE_KERNEL("gated_delta_rule_" #type "_64", gated_delta_rule, type, 64)   \
  QUIRE_KERNEL("gated_delta_rule_" #type "_128", gated_delta_rule, type, 128) \
  QUIRE_KERNEL("gated_delta_rule_" #type "_256", gated_delta_rule, type, 256)
QUIRE_DELTA(float)
QUIRE_DELTA(half)
QUIRE_DELTA(bfloat)
