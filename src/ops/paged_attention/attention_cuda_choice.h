#pragma once
#include <cstdint>

#include "ops/cuda/cuda_traits.h"
#include "ops/paged_attention/paged_attention_cuda.h"

namespace quire::ops {

// The kernels of attention on a GPU. The bits are the same of all but kPlain, which takes what the
// others do not.
enum class AttentionCudaKernel : uint8_t {
  kNone,          // there are no such items
  kPlain,         // no tensor cores: all rows, without items
  kTiles,         // any head size
  kTilesOf128,    // that knows heads of 128 (attention_kernel.cuh)
  kShared,        // Hopper's, of few rows: clusters share chunks (attention_shared_sm90_cuda.cu)
  kPrefill,       // of 128 rows (attention_prefill.cuh)
  kWgmmaPrefill,  // Hopper's, of 128 rows (attention_prefill_sm90_cuda.cu)
};

// For both lists of items.
struct AttentionCudaChoice {
  AttentionCudaKernel few = AttentionCudaKernel::kNone, many = AttentionCudaKernel::kNone;
  bool operator==(const AttentionCudaChoice&) const = default;
};

// Of a step, sizes count, and no address. `wide`: rows of queries, keys and values begin at
// multiples of 16 bytes.
AttentionCudaChoice choose_attention_cuda(const AttentionKernelParams& params,
                                          const AttentionCudaBatch& batch, bool wide,
                                          const CudaTraits& traits);

// What paged_attention_cuda() returns for it.
const char* kernel_log_name(const AttentionCudaChoice& choice);

}  // namespace quire::ops
