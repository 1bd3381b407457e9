#include "engine/memory_fit.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "engine/block_demand.h"
#include "engine/cache_groups.h"
#include "engine/kv_pool.h"

namespace quire::engine {
namespace {

std::string gib(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

// A block, or a request of the asked length, and a state.
int64_t least_cache(const models::ModelSize& size, const SchedulerOptions& options,
                    const MemoryRequest& request, const BlockDemand& demand, int64_t block) {
  const int64_t tokens = std::max<int64_t>(1, request.max_model_len);
  return demand.most_blocks(0, tokens, options.max_num_batched_tokens) * block +
         KvPool::state_bytes(size.caches, size.dtype);
}

}  // namespace

int64_t check_fits(const std::string& model, const models::ModelSize& size,
                   const SchedulerOptions& options, const MemoryRequest& request, int64_t available,
                   bool is_gpu) {
  const CacheGroups groups = group_layers(size.caches, size.max_positions, !is_gpu);
  const BlockDemand demand(options.block_size, groups.windows);
  const int64_t block =
      KvPool::block_bytes(groups, options.block_size, size.dtype, request.kv_storage);
  const int64_t longest =
      block == 0
          ? 0
          : std::max<int64_t>(1, demand.longest(available / block, options.max_num_batched_tokens));
  const int64_t positions = block == 0 ? size.max_positions : std::min(size.max_positions, longest);
  const int64_t step = activation_bytes(size.caches, size.widest_activation, size.vocab, size.dtype,
                                        options, is_gpu) +
                       positions * size.rope_bytes;
  const int64_t least = least_cache(size, options, request, demand, block);
  const int64_t asked =
      request.num_blocks > 0 ? request.num_blocks * block : request.kv_cache_bytes;
  const int64_t cache = std::max(least, asked);
  const int64_t beside = step + cache;
  const int64_t needed = size.weights + beside;
  if (needed <= available) return longest;
  const std::string message = model + ": needs " + gib(needed) +
                              (is_gpu ? " of the GPU's memory (weights " : " of memory (weights ") +
                              gib(size.weights) + ", KV cache " + gib(cache) +
                              ", a step and tables " + gib(step) + "), " + gib(available) +
                              (is_gpu ? " are free for it; " : " are free; ");
  if (needed - cache + least <= available)
    throw LoadError(message + "lower --kv-cache-memory or --num-gpu-blocks-override");
  if (needed <= available + request.kept_free)
    throw LoadError(message + "raise --gpu-memory-utilization");
  if (size.weights > available / 2 && size.weights_in_4_bits < size.weights) {
    throw LoadError(message + "`quire quantize --bits 4` makes it about " +
                    gib(size.weights_in_4_bits + beside));
  }
  if (size.weights > available / 2) throw LoadError(message + "free some, or take a smaller model");
  throw LoadError(message + "lower --max-model-len, --max-num-batched-tokens or --max-num-seqs");
}

}  // namespace quire::engine
