#include "ops/metal/kv_codes.metal.h"
// first
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_metal.h"

using namespace metal;
using namespace quire;
using namespace quire::ops;

constant bool has_q_norm [[function_constant(kQkRopeHasQNorm)]];
constant bool has_k_norm [[function_constant(kQkRopeHasKNorm)]];
constant bool norms_follow [[function_constant(kQkRopeNormsFollow)]];
constant bool has_codes [[function_constant(kQkRopeHasCodes)]];
constant bool is_fp8 [[function_constant(kQkRopeIsFp8)]];

// Norms a head that lies in threadgroup memory, by one simdgroup.
template <typename T>
inline void norm_head(threadgroup float* head, const device float* weight, int dim, float eps,
                      int lane) {
  float sum = 0;
  for (int i = lane; i < dim; i += kLanes) sum = fma(head[i], head[i], sum);
  const float scale = 1.0f / precise::sqrt(simd_sum(sum) / float(dim) + eps);
  for (int i = lane; i < dim; i += kLanes) head[i] = rounded<T>(head[i] * scale * weight[i]);
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Turns pairs (i, i + half).
template <typename T>
inline void turn_head(threadgroup float* head, const device float* cos_sin, int half_dim,
                      int lane) {
  for (int i = lane; i < half_dim; i += kLanes) {
    const float a = head[i], b = head[i + half_dim];
    const float cosine = cos_sin[i], sine = cos_sin[half_dim + i];
    head[i] = rounded<T>(fma(-b, sine, a * cosine));
    head[i + half_dim] = rounded<T>(fma(a, sine, b * cosine));
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// A simdgroup for each head of q, k and v of each token.
template <typename T>
[[kernel]] void qk_norm_rope_kv_write(
    constant QkNormRopeKvWriteMetalParams& p [[buffer(kQkRopeParams)]],
    const device int* positions [[buffer(kQkRopePositions)]],
    const device int64_t* slots [[buffer(kQkRopeSlots)]],
    const device float* cos_sin [[buffer(kQkRopeCosSin)]],
    const device float* q_norm [[buffer(kQkRopeQNorm), function_constant(has_q_norm)]],
    const device float* k_norm [[buffer(kQkRopeKNorm), function_constant(has_k_norm)]],
    const device T* qkv [[buffer(kQkRopeQkv)]], device T* q [[buffer(kQkRopeQ)]],
    device uchar* k_pool [[buffer(kQkRopeKeyPool)]],
    device uchar* v_pool [[buffer(kQkRopeValuePool)]],
    device float* k_scale [[buffer(kQkRopeKeyScale), function_constant(has_codes)]],
    device float* v_scale [[buffer(kQkRopeValueScale), function_constant(has_codes)]],
    threadgroup float* rows [[threadgroup(0)]], uint3 group [[threadgroup_position_in_grid]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint simdgroups [[simdgroups_per_threadgroup]], uint lane_index [[thread_index_in_simdgroup]]) {
  const int64_t item = int64_t(group.x) * simdgroups + simdgroup;
  if (item >= p.items) return;
  const int per_token = p.heads + 2 * p.kv_heads, dim = p.head_dim, lane = int(lane_index);
  const int64_t token = item / per_token, slot = slots[token];
  const int index = int(item % per_token);
  const bool is_query = index < p.heads, is_key = !is_query && index < p.heads + p.kv_heads;
  if (!is_query && slot < 0) return;
  threadgroup float* head = rows + simdgroup * uint(dim);
  const device T* from = qkv + token * p.row + int64_t(index) * dim;
  for (int i = lane; i < dim; i += kLanes) head[i] = float(from[i]);
  simdgroup_barrier(mem_flags::mem_threadgroup);

  const bool is_normed = is_query ? has_q_norm : (is_key && has_k_norm);
  const device float* weight = is_query ? q_norm : k_norm;
  if (is_normed && !norms_follow) norm_head<T>(head, weight, dim, p.eps, lane);
  if (is_query || is_key)
    turn_head<T>(head, cos_sin + int64_t(positions[token]) * 2 * p.rotary_half, p.rotary_half,
                 lane);
  if (is_normed && norms_follow) norm_head<T>(head, weight, dim, p.eps, lane);

  device T* to = q + (token * p.heads + index) * dim;
  if (!is_query) {
    const int kv_head = index - p.heads - (is_key ? 0 : p.kv_heads);
    const int64_t row = slot * p.kv_heads + kv_head;
    device uchar* pool = is_key ? k_pool : v_pool;
    if (has_codes) {
      const float scale = quantise_row(head, dim, is_fp8, pool + row * dim, lane);
      if (lane == 0) (is_key ? k_scale : v_scale)[row] = scale;
      return;
    }
    to = (device T*)pool + row * dim;
  }
  for (int i = lane; i < dim; i += kLanes) to[i] = T(head[i]);
}

QUIRE_KERNEL("qk_norm_rope_kv_write_float", qk_norm_rope_kv_write, float)
QUIRE_KERNEL("qk_norm_rope_kv_write_half", qk_norm_rope_kv_write, half)
QUIRE_KERNEL("qk_norm_rope_kv_write_bfloat", qk_norm_rope_kv_write, bfloat)
