#pragma once
#include "ops/metal/shared_types.h"
#ifndef __METAL_VERSION__
#include "ops/metal/metal_call.h"
#endif

namespace quire::ops {

struct KvWriteMetalParams {
  int64_t key_units, value_units;  // of a token's row, as the kernel counts
};

// Where the kernel finds its arrays; the pools are written.
enum KvWriteMetalBuffer {
  kKvWriteParams,
  kKvWriteSlots,  // [T] int64: token's slot; negative: do not write
  kKvWriteKeys,   // [T, K, D]
  kKvWriteValues,
  kKvWriteKeyPool,  // [N, P, K, D]
  kKvWriteValuePool,
};

#ifndef __METAL_VERSION__
struct KvWriteMetal {
  KvWriteMetalParams params;
  MetalCall call;
};
// Copies rows of keys and values to their slots. alignment: what all four arrays and their offsets
// are aligned to, a power of two; rows are copied in units of up to 16 bytes.
KvWriteMetal kv_write_metal(int64_t tokens, int64_t key_bytes, int64_t value_bytes,
                            int64_t alignment);
#endif

}  // namespace quire::ops
