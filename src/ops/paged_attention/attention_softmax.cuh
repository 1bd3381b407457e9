#pragma once
#include "ops/cuda/kv_codes.cuh"
#include "ops/paged_attention/paged_attention_cuda.h"

// The arithmetic that all attention kernels share: masks, scores, and how partial results join.
namespace quire::ops {

// A score's place among its row's keys.
struct AttentionRow {
  int position = 0;        // of the query
  int first = 0, end = 0;  // the keys that it sees
  float slope = 0;
};

__device__ inline AttentionRow attention_row(const AttentionKernelParams& p, int64_t sequence,
                                             int64_t head, int64_t position, int64_t context) {
  AttentionRow row;
  // As AttentionKernelParams::first_key.
  int64_t first = p.window_left < 0 ? 0 : max(int64_t{0}, position - p.window_left);
  if (p.window_step > 0) first = max(first, position / p.window_step * p.window_step);
  row.position = static_cast<int>(position);
  row.first = static_cast<int>(min(first, context));
  row.end = static_cast<int>(
      p.window_right < 0 ? context : max(int64_t{0}, min(context, position + p.window_right + 1)));
  if (p.alibi != nullptr) row.slope = p.alibi[sequence * p.alibi_stride + head];
  return row;
}

// A score from q.k, in the units of which p = 2^((s - m) * exponent_scale).
__device__ inline float attention_score(const AttentionKernelParams& p, const AttentionRow& row,
                                        int key, float dot) {
  float s = dot;
  if (p.softcap > 0) s = p.softcap * tanhf(s * p.softcap_scale);
  if (p.alibi == nullptr) return s;
  return fmaf(-row.slope, static_cast<float>(abs(row.position - key)), s * p.score_scale);
}

// 2^((s - m) * scale), where s <= m; m is -infinity if nothing is summed, or nothing but NaN.
__device__ inline float attention_probability(float s, float m, float scale) {
  if (m == -INFINITY) return isnan(s) ? s : 0.0f;
  return exp2f((s - m) * scale);
}
// The same by one fused multiply-add and the approximation of the hardware (2 units in the last
// place), with offset = probability_offset(m, scale). The offset's rounding cancels when chunks
// join.
__device__ inline float probability_offset(float m, float scale) {
  return m == -INFINITY ? 0.0f : -(m * scale);
}
__device__ inline float fast_probability(float s, float scale, float offset) {
  float probability;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(probability) : "f"(fmaf(s, scale, offset)));
  return s == -INFINITY ? 0.0f : probability;
}
// What turns sums with maximum `from` into those with maximum `to`.
__device__ inline float attention_shrink(float from, float to, float scale) {
  if (from == to) return 1.0f;
  return from == -INFINITY ? 0.0f : exp2f((from - to) * scale);
}

// A row's chunks joined so far; m in units of log2.
struct AttentionTotal {
  float m = -INFINITY, l = 0;
};
struct JoinFactors {
  float old, added;
};
__device__ inline AttentionTotal attention_begin(const AttentionKernelParams& p, int64_t head) {
  AttentionTotal total;
  if (p.sinks != nullptr) {
    total.m = p.sinks[head] * 1.44269504f;
    total.l = 1.0f;
  }
  return total;
}
// Joins a chunk with maximum m (log2) and sum l; its values join by join_value.
__device__ inline JoinFactors attention_join(AttentionTotal& total, float m, float l) {
  const float peak = fmaxf(total.m, m);
  const JoinFactors f = {attention_shrink(total.m, peak, 1.0f), attention_shrink(m, peak, 1.0f)};
  total.m = peak;
  total.l = fmaf(l, f.added, total.l * f.old);
  return f;
}
__device__ inline float join_value(const JoinFactors& f, float total, float added) {
  return fmaf(added, f.added, total * f.old);
}
// A chunk's maximum in units of log2.
__device__ inline float log2_maximum(float m, float scale) {
  return m == -INFINITY ? m : m * scale;
}
__device__ inline float attention_divide(float value, float l) { return l == 0 ? 0 : value / l; }
__device__ inline float attention_log_sum(const AttentionTotal& total) {
  return total.l == 0 ? -INFINITY : fmaf(total.m, 0.693147181f, logf(total.l));
}

// AttentionKernelParams::value_pitch.
__device__ inline int64_t value_pitch_of(const AttentionKernelParams& p) {
  return p.values_in_keys ? p.key_dim : p.value_dim;
}

// The slot of a sequence's key.
__device__ inline int64_t key_slot(const int32_t* blocks, int64_t block_size, int64_t key) {
  return blocks[key / block_size] * block_size + key % block_size;
}

}  // namespace quire::ops
