#include "engine/kv_pool.h"

namespace quire::engine {

KvPool::KvPool(const std::vector<models::CacheSpec>& layers, int64_t num_blocks, int64_t block_size,
               mx::Dtype dtype) {
  caches_.reserve(layers.size());
  for (const auto& layer : layers)
    caches_.push_back(
        ops::make_paged_kv(num_blocks, block_size, layer.kv_heads, layer.head_dim, dtype));
}

int64_t KvPool::block_bytes(const std::vector<models::CacheSpec>& layers, int64_t block_size,
                            mx::Dtype dtype) {
  int64_t elements = 0;
  for (const auto& layer : layers) elements += 2 * block_size * layer.kv_heads * layer.head_dim;
  return elements * static_cast<int64_t>(mx::size_of(dtype));
}

}  // namespace quire::engine
