#include "ops/metal/kernel.metal.h"
// first
#include "ops/gather_pages/gather_pages_metal.h"

using namespace metal;
using namespace quire::ops;

// A threadgroup for each row.
template <typename Unit>
[[kernel]] void gather_pages(constant GatherPagesMetalParams& p [[buffer(kGatherPagesParams)]],
                             const device int64_t* slots [[buffer(kGatherPagesSlots)]],
                             const device Unit* pool [[buffer(kGatherPagesPool)]],
                             device Unit* rows [[buffer(kGatherPagesRows)]],
                             uint3 group [[threadgroup_position_in_grid]],
                             uint thread_index [[thread_index_in_threadgroup]],
                             uint3 threads [[threads_per_threadgroup]]) {
  const int64_t row = group.x, slot = slots[row];
  const device Unit* from = pool + max(slot, int64_t(0)) * p.row_units;
  device Unit* to = rows + row * p.row_units;
  for (int64_t i = thread_index; i < p.row_units; i += threads.x)
    to[i] = slot < 0 ? Unit(0) : from[i];
}

QUIRE_KERNEL("gather_pages_2", gather_pages, ushort)
QUIRE_KERNEL("gather_pages_4", gather_pages, uint)
QUIRE_KERNEL("gather_pages_8", gather_pages, uint2)
QUIRE_KERNEL("gather_pages_16", gather_pages, uint4)
