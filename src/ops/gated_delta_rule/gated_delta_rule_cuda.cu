#include "ops/gated_delta_rule/gated_delta_rule_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 128, kRows = 32;  // of Dv: four threads a row
constexpr int kMostKeyDim = 256;

// One token's inputs in shared memory: q and k as they are, and their factors.
struct Token {
  float q[kMostKeyDim], k[kMostKeyDim];
  float q_squares[kThreads / 32], k_squares[kThreads / 32];
};

__device__ inline float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

template <class T>
__device__ inline void stage(const GatedDeltaRuleParams& p, const T* row, int64_t key_head,
                             Token& token) {
  const T* q = row + key_head * p.k_dim;
  const T* k = q + p.k_heads * p.k_dim;
  float q_sum = 0, k_sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < p.k_dim; i += kThreads) {
    const float a = widen(q[i]), b = widen(k[i]);
    token.q[i] = a;
    token.k[i] = b;
    q_sum = fmaf(a, a, q_sum);
    k_sum = fmaf(b, b, k_sum);
  }
  q_sum = warp_sum(q_sum);
  k_sum = warp_sum(k_sum);
  if (threadIdx.x % 32 != 0) return;
  token.q_squares[threadIdx.x / 32] = q_sum;
  token.k_squares[threadIdx.x / 32] = k_sum;
}

__device__ inline float inverse_norm(const float (&squares)[kThreads / 32]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) sum += squares[i];
  return 1.0f / sqrtf(sum + 1e-6f);
}

// The four threads of a row.
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(kWholeWarp, x, 1);
  return x + __shfl_xor_sync(kWholeWarp, x, 2);
}

// A thread's columns of a row of the state: 4 (4 i + part) to 4 (4 i + part) + 3.
template <int kVectors>
struct StateRow {
  float4 m[kVectors];
  int part;

  __device__ void load(const float* state, int64_t k_dim, bool exists) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int at = 4 * (4 * i + part);
      m[i] = exists && at < k_dim ? *reinterpret_cast<const float4*>(state + at)
                                  : make_float4(0, 0, 0, 0);
    }
  }
  __device__ void store(float* state, int64_t k_dim) const {
#pragma unroll
    for (int i = 0; i < kVectors; ++i)
      if (const int at = 4 * (4 * i + part); at < k_dim)
        *reinterpret_cast<float4*>(state + at) = m[i];
  }

  // S = decay S, and the thread's part of S k.
  __device__ float decay_and_see(float decay, const float* keys) {
    float seen = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const float4 k = *reinterpret_cast<const float4*>(keys + 4 * (4 * i + part));
      m[i].x *= decay, m[i].y *= decay, m[i].z *= decay, m[i].w *= decay;
      seen = fmaf(m[i].x, k.x, seen);
      seen = fmaf(m[i].y, k.y, seen);
      seen = fmaf(m[i].z, k.z, seen);
      seen = fmaf(m[i].w, k.w, seen);
    }
    return seen;
  }
  // S = S + change k, and the thread's part of S q.
  __device__ float change_and_ask(float change, const float* keys, const float* queries) {
    float y = 0;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const float4 k = *reinterpret_cast<const float4*>(keys + 4 * (4 * i + part));
      const float4 q = *reinterpret_cast<const float4*>(queries + 4 * (4 * i + part));
      m[i].x = fmaf(change, k.x, m[i].x);
      m[i].y = fmaf(change, k.y, m[i].y);
      m[i].z = fmaf(change, k.z, m[i].z);
      m[i].w = fmaf(change, k.w, m[i].w);
      y = fmaf(m[i].x, q.x, y);
      y = fmaf(m[i].y, q.y, y);
      y = fmaf(m[i].z, q.z, y);
      y = fmaf(m[i].w, q.w, y);
    }
    return y;
  }
};

// A block walks 32 rows of one value head's state over a sequence's tokens.
template <class T, int kVectors>
__global__ void __launch_bounds__(kThreads, kVectors <= 8 ? 4 : 2)
    hot_walk(const GatedDeltaRuleParams p, const StateCudaBatch b) {
  __shared__ Token tokens[2];
  begin_dependent();
  const int64_t s = blockIdx.z, head = blockIdx.y, slot = b.state_slots[s];
  const int64_t begin = b.cu_seqlens[s], end = b.cu_seqlens[s + 1];
  if (begin == end || slot < 0) return;
  StateRow<kVectors> row;
  row.part = static_cast<int>(threadIdx.x) % 4;
  const int64_t v_row = blockIdx.x * kRows + threadIdx.x / 4;
  const bool exists = v_row < p.v_dim;
  const int64_t key_head = p.heads_take_turns ? head % p.k_heads : head / (p.v_heads / p.k_heads);
  const int64_t row_size = 2 * p.k_heads * p.k_dim + p.v_heads * p.v_dim;
  const T* qkv = static_cast<const T*>(p.qkv);
  float* state = p.state + ((slot * p.v_heads + head) * p.v_dim + v_row) * p.k_dim;
  row.load(state, p.k_dim, exists && b.positions[begin] != 0);
  const float a_log = p.a_log[head], dt_bias = p.dt_bias[head];
  const float q_scale = 1.0f / sqrtf(static_cast<float>(p.k_dim));
  // Columns beyond Dk are zeros for good.
  for (int i = static_cast<int>(threadIdx.x); i < kMostKeyDim; i += kThreads)
    if (i >= p.k_dim) tokens[0].q[i] = tokens[0].k[i] = tokens[1].q[i] = tokens[1].k[i] = 0;
  stage(p, qkv + begin * row_size, key_head, tokens[begin % 2]);
  for (int64_t t = begin; t < end; ++t) {
    const T* gates = static_cast<const T*>(p.gates) + t * p.gates_row;
    const float a = widen(gates[p.a_column + head]), gate = widen(gates[p.b_column + head]);
    const int64_t v_at = t * row_size + 2 * p.k_heads * p.k_dim + head * p.v_dim + v_row;
    const float v = exists ? widen(qkv[v_at]) : 0.0f;
    const float decay = expf(-expf(a_log) * softplus(a + dt_bias)), beta = sigmoid(gate);
    __syncthreads();
    if (t + 1 < end) stage(p, qkv + (t + 1) * row_size, key_head, tokens[(t + 1) % 2]);
    const Token& token = tokens[t % 2];
    const float q_factor = inverse_norm(token.q_squares) * q_scale;
    const float k_factor = inverse_norm(token.k_squares);
    const float seen = row_sum(row.decay_and_see(decay, token.k)) * k_factor;
    const float change = (v - seen) * beta * k_factor;
    const float y = row_sum(row.change_and_ask(change, token.k, token.q)) * q_factor;
    if (exists && row.part == 0)
      static_cast<T*>(p.y)[(t * p.v_heads + head) * p.v_dim + v_row] = narrow<T>(y);
  }
  if (exists) row.store(state, p.k_dim);
}

}  // namespace

void gated_delta_rule_cuda(CudaStream stream, const GatedDeltaRuleParams& p,
                           const StateCudaBatch& b) {
  const dim3 grid(blocks_for(p.v_dim, kRows), static_cast<unsigned>(p.v_heads),
                  static_cast<unsigned>(b.num_sequences));
  with_float_type(p.type, [&](auto t) {
    using T = decltype(t);
    auto kernel = hot_walk<T, 16>;
    if (p.k_dim <= 128) kernel = hot_walk<T, 8>;
    if (p.k_dim <= 64) kernel = hot_walk<T, 4>;
    launch("gated_delta_rule", stream, kernel, grid, kThreads, 0, p, b);
  });
}

}  // namespace quire::ops
