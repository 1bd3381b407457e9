#pragma once
#include "ops/metal/shared_types.h"
#ifndef __METAL_VERSION__
#include "ops/metal/metal_call.h"
#endif

namespace quire::ops {

struct GatherPagesMetalParams {
  int64_t row_units;  // of a row, as the kernel counts
};

enum GatherPagesMetalBuffer {
  kGatherPagesParams,
  kGatherPagesSlots,  // [C] int64: of each row; negative: zeros
  kGatherPagesPool,   // [N * P, row_bytes]
  kGatherPagesRows,   // [C, row_bytes], written
};

#ifndef __METAL_VERSION__
struct GatherPagesMetal {
  GatherPagesMetalParams params;
  MetalCall call;
};
// Copies rows of a pool. alignment: what both arrays are aligned to, a power of two.
GatherPagesMetal gather_pages_metal(int64_t rows, int64_t row_bytes, int64_t alignment);
#endif

}  // namespace quire::ops
