#pragma once
#include <mlx/mlx.h>

namespace quire::ops {

namespace mx = mlx::core;

// The KV pool of one attention layer. The arrays alias one piece of memory for the whole life of
// the engine: kv_write returns new handles to the same buffers, and every later reader takes those,
// so that the graph orders reads after writes. An old handle must not be read again.
struct PagedKv {
  mx::array k;  // [N, P, K, D]
  mx::array v;  // [N, P, K, Dv]
};

// An uninitialised pool of `num_blocks` blocks (pages are committed when they are first written).
PagedKv make_paged_kv(int64_t num_blocks, int64_t block_size, int64_t kv_heads, int64_t head_dim,
                      mx::Dtype dtype);

}  // namespace quire::ops
