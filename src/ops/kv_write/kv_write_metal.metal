#include "ops/metal/kernel.metal.h"
// first
#include "ops/kv_write/kv_write_metal.h"

using namespace metal;
using namespace quire::ops;

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

QUIRE_KERNEL("kv_write_2", kv_write, ushort)
QUIRE_KERNEL("kv_write_4", kv_write, uint)
QUIRE_KERNEL("kv_write_8", kv_write, uint2)
QUIRE_KERNEL("kv_write_16", kv_write, uint4)
