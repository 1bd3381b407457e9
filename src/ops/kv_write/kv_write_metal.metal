#include "ops/metal/kv_codes.metal.h"
// first
#include "ops/kv_write/kv_write_metal.h"

using namespace metal;
using namespace quire;
using namespace quire::ops;

constant bool is_fp8 [[function_constant(kKvWriteIsFp8)]];

// A threadgroup for the keys, and one for the values, of each token.
template <typename Unit>
[[kernel]] void kv_write(constant KvWriteMetalParams& p [[buffer(kKvWriteParams)]],
                         const device int64_t* slots [[buffer(kKvWriteSlots)]],
                         const device Unit* k [[buffer(kKvWriteKeys)]],
                         const device Unit* v [[buffer(kKvWriteValues)]],
                         device Unit* k_pool [[buffer(kKvWriteKeyPool)]],
                         device Unit* v_pool [[buffer(kKvWriteValuePool)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]],
                         uint3 threads [[threads_per_threadgroup]]) {
  const int64_t token = group.x, slot = slots[token];
  if (slot < 0) return;
  const bool is_key = group.y == 0;
  const int64_t units = is_key ? p.key_units : p.value_units;
  const device Unit* from = (is_key ? k : v) + token * units;
  device Unit* to = (is_key ? k_pool : v_pool) + slot * units;
  for (int64_t i = thread_index; i < units; i += threads.x) to[i] = from[i];
}

// A simdgroup for the keys, and one for the values, of each token and kv head.
template <typename T>
[[kernel]] void kv_quantise(constant KvQuantiseMetalParams& p [[buffer(kKvWriteParams)]],
                            const device int64_t* slots [[buffer(kKvWriteSlots)]],
                            const device T* k [[buffer(kKvWriteKeys)]],
                            const device T* v [[buffer(kKvWriteValues)]],
                            device uchar* k_pool [[buffer(kKvWriteKeyPool)]],
                            device uchar* v_pool [[buffer(kKvWriteValuePool)]],
                            device float* k_scale [[buffer(kKvWriteKeyScale)]],
                            device float* v_scale [[buffer(kKvWriteValueScale)]],
                            threadgroup float* rows [[threadgroup(0)]],
                            uint3 group [[threadgroup_position_in_grid]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]],
                            uint simdgroups [[simdgroups_per_threadgroup]],
                            uint lane_index [[thread_index_in_simdgroup]]) {
  const int64_t index = int64_t(group.x) * simdgroups + simdgroup;
  if (index >= p.rows) return;
  const int64_t slot = slots[index / p.kv_heads];
  if (slot < 0) return;
  const bool is_key = group.y == 0;
  const int lane = int(lane_index), dim = is_key ? p.key_dim : p.value_dim;
  const int64_t to = slot * p.kv_heads + index % p.kv_heads;
  threadgroup float* row = rows + simdgroup * uint(p.most_dim);
  const device T* from = (is_key ? k : v) + index * dim;
  for (int i = lane; i < dim; i += kLanes) row[i] = float(from[i]);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const float scale = quantise_row(row, dim, is_fp8, (is_key ? k_pool : v_pool) + to * dim, lane);
  if (lane == 0) (is_key ? k_scale : v_scale)[to] = scale;
}

QUIRE_KERNEL("kv_write_codes_float", kv_quantise, float)
QUIRE_KERNEL("kv_write_codes_half", kv_quantise, half)
QUIRE_KERNEL("kv_write_codes_bfloat", kv_quantise, bfloat)
QUIRE_KERNEL("kv_write_2", kv_write, ushort)
QUIRE_KERNEL("kv_write_4", kv_write, uint)
QUIRE_KERNEL("kv_write_8", kv_write, uint2)
QUIRE_KERNEL("kv_write_16", kv_write, uint4)
