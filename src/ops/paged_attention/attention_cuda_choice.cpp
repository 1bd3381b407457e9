#include "ops/paged_attention/attention_cuda_choice.h"

#include "ops/linear/cuda/linear_cuda.h"

namespace quire::ops {
namespace {

using Kernel = AttentionCudaKernel;

// Heads of 64 or 128, whose keys and values lie apart, in bfloat16: what Hopper's kernels take.
bool is_for_hopper(const AttentionKernelParams& p, bool wide, const CudaTraits& traits) {
  const bool dims = p.key_dim == p.value_dim && (p.key_dim == 64 || p.key_dim == 128);
  return traits.is_hopper && wide && dims && p.q_type == FloatType::kBf16 &&
         p.kv_type == KvType::kBf16 && !p.values_in_keys;
}

Kernel of_few_rows(const AttentionKernelParams& p, const AttentionCudaBatch& batch, bool wide,
                   const CudaTraits& traits) {
  // With more sequences there is enough to do without.
  constexpr int64_t kMostSequences = 4, kMostClusters = 132 * 2 / kAttentionShares;
  if (batch.few.max_count == 0) return Kernel::kNone;
  if (is_quantised(p.kv_type)) return Kernel::kTiles;
  if (is_for_hopper(p, wide, traits) && batch.num_sequences <= kMostSequences &&
      batch.few.max_count * p.kv_heads <= kMostClusters)
    return Kernel::kShared;
  const bool is_128 = p.key_dim == 128 && p.value_dim == 128;
  return is_128 && has_room_for(attention_shapes(p, 16, 3), traits.block_memory)
             ? Kernel::kTilesOf128
             : Kernel::kTiles;
}

Kernel of_many_rows(const AttentionKernelParams& p, const AttentionCudaBatch& batch, bool wide,
                    const CudaTraits& traits) {
  constexpr int64_t kTile = AttentionShapes::kTileKeys;
  if (batch.many.max_count == 0) return Kernel::kNone;
  if (is_quantised(p.kv_type)) return Kernel::kTiles;
  const bool pages =
      p.block_size % 8 == 0 && (kTile % p.block_size == 0 || p.block_size % kTile == 0);
  if (is_for_hopper(p, wide, traits) && pages) return Kernel::kWgmmaPrefill;
  return attention_cuda_many_rows(p, traits.block_memory) == 128 ? Kernel::kPrefill
                                                                 : Kernel::kTiles;
}

const char* name_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::kNone:
      break;
    case Kernel::kPlain:
      return "cuda_plain";
    case Kernel::kTiles:
    case Kernel::kTilesOf128:
    case Kernel::kPrefill:
      return "cuda_mma";
    case Kernel::kShared:
    case Kernel::kWgmmaPrefill:
      return "cuda_sm90";
  }
  return nullptr;
}

}  // namespace

AttentionCudaChoice choose_attention_cuda(const AttentionKernelParams& p,
                                          const AttentionCudaBatch& batch, bool wide,
                                          const CudaTraits& traits) {
  if (batch.num_tokens == 0) return {};
  if (!has_tensor_core_attention(p, traits.block_memory))
    return {.few = Kernel::kPlain, .many = Kernel::kPlain};
  return {.few = of_few_rows(p, batch, wide, traits), .many = of_many_rows(p, batch, wide, traits)};
}

const char* kernel_log_name(const AttentionCudaChoice& choice) {
  return joined_name(name_of(choice.few), name_of(choice.many));
}

}  // namespace quire::ops
