#include "ops/metal/kernel.metal.h"
// first
#include "ops/copy_slots/copy_slots_metal.h"

using namespace metal;
using namespace quire::ops;

// A row of threadgroups for each pair.
template <typename Unit>
[[kernel]] void copy_slots(constant CopySlotsMetalParams& p [[buffer(kCopySlotsParams)]],
                           const device int* pairs [[buffer(kCopySlotsPairs)]],
                           device Unit* pool [[buffer(kCopySlotsPool)]],
                           uint3 place [[thread_position_in_grid]],
                           uint3 threads [[threads_per_grid]]) {
  const device Unit* from = pool + int64_t(pairs[2 * place.y]) * p.slot_units;
  device Unit* to = pool + int64_t(pairs[2 * place.y + 1]) * p.slot_units;
  for (int64_t i = place.x; i < p.slot_units; i += threads.x) to[i] = from[i];
}

QUIRE_KERNEL("copy_slots_2", copy_slots, ushort)
QUIRE_KERNEL("copy_slots_4", copy_slots, uint)
QUIRE_KERNEL("copy_slots_8", copy_slots, uint2)
QUIRE_KERNEL("copy_slots_16", copy_slots, uint4)
