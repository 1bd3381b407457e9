#pragma once
#include "ops/metal/shared_types.h"
#ifndef __METAL_VERSION__
#include "ops/kv_write/kv_write_cpu.h"
#include "ops/metal/metal_call.h"
#endif

namespace quire::ops {

struct KvWriteMetalParams {
  int64_t key_units, value_units;  // of a token's row, as the kernel counts
};

struct KvQuantiseMetalParams {
  int64_t rows;  // of keys: one for each token and kv head
  int32_t kv_heads, key_dim, value_dim, most_dim;
};

// Where the kernels find their arrays; the pools are written.
enum KvWriteMetalBuffer {
  kKvWriteParams,
  kKvWriteSlots,  // [T] int64: token's slot; negative: do not write
  kKvWriteKeys,   // [T, K, D]
  kKvWriteValues,
  kKvWriteKeyPool,  // [N, P, K, D]
  kKvWriteValuePool,
  kKvWriteKeyScale,  // [N, P, K] float32, of pools of codes
  kKvWriteValueScale,
};
enum KvWriteMetalConstant { kKvWriteIsFp8 };

#ifndef __METAL_VERSION__
struct KvWriteMetal {
  KvWriteMetalParams params;
  MetalCall call;
};
// Copies rows of keys and values to their slots. alignment: what all four arrays and their offsets
// are aligned to, a power of two; rows are copied in units of up to 16 bytes.
KvWriteMetal kv_write_metal(int64_t tokens, int64_t key_bytes, int64_t value_bytes,
                            int64_t alignment);

struct KvQuantiseMetal {
  KvQuantiseMetalParams params;
  MetalCall call;
};
// Of `params` the types and shapes count. Writes rows as codes with a scale each, by their own
// absmax, as kv_quantise_cpu() does and with its bits.
KvQuantiseMetal kv_quantise_metal(const KvQuantiseParams& params, int64_t tokens);
#endif

}  // namespace quire::ops
