#pragma once
#include "ops/metal/shared_types.h"
#ifndef __METAL_VERSION__
#include "ops/metal/metal_call.h"
#endif

namespace quire::ops {

struct CopySlotsMetalParams {
  int64_t slot_units;  // of a slot, as the kernel counts
};

enum CopySlotsMetalBuffer {
  kCopySlotsParams,
  kCopySlotsPairs,  // [count, 2] int32: from, to; no slot that is written is read or written again
  kCopySlotsPool,   // [slots, slot_bytes], in place
};

#ifndef __METAL_VERSION__
struct CopySlotsMetal {
  CopySlotsMetalParams params;
  MetalCall call;
};
// Copies slots within one pool. alignment: what its memory is aligned to, a power of two.
CopySlotsMetal copy_slots_metal(int64_t count, int64_t slot_bytes, int64_t alignment);
#endif

}  // namespace quire::ops
