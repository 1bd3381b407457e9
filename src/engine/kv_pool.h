#pragma once
#include <cstdint>
#include <vector>

#include "models/layer_spec.h"
#include "ops/kv_cache.h"

namespace quire::engine {

namespace mx = mlx::core;

// The paged KV memory of all layers: one K and one V pool each, all with the same blocks, so that
// one block table serves every layer. Allocated once; pages are committed as they are first
// written.
class KvPool {
 public:
  KvPool(const std::vector<models::CacheSpec>& layers, int64_t num_blocks, int64_t block_size,
         mx::Dtype dtype);

  // The handles that the next step must read and replace.
  std::vector<ops::PagedKv>& caches() { return caches_; }

  // Bytes of one block over all layers.
  static int64_t block_bytes(const std::vector<models::CacheSpec>& layers, int64_t block_size,
                             mx::Dtype dtype);

 private:
  std::vector<ops::PagedKv> caches_;
};

}  // namespace quire::engine
