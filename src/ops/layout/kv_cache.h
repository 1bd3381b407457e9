#pragma once
#include <mlx/mlx.h>

#include <optional>
#include <string_view>
#include <vector>

#include "ops/layout/batch_layout.h"
#include "ops/layout/kv_type.h"
#include "ops/runtime/device.h"

namespace quire::ops {

namespace mx = mlx::core;

// The KV pool of one attention layer. The arrays alias one piece of memory for the whole life of
// the engine: kv_write returns new handles to the same buffers, and every later reader takes those,
// so that the graph orders reads after writes. An old handle must not be read again.
//
// Quantised pools hold codes, int8 (mx::int8) or FP8-E4M3 (mx::uint8), and a float32 scale for each
// token and head. float32, because bfloat16 scales would save 2 bytes of 132 (D = 128) and add an
// error of 2^-9 to every score.
struct PagedKv {
  mx::array k;                                      // [N, P, K, D]
  mx::array v;                                      // [N, P, K, Dv]
  std::optional<mx::array> k_scale = std::nullopt;  // [N, P, K] float32, of quantised pools
  std::optional<mx::array> v_scale = std::nullopt;  // [N, P, K] float32, of quantised pools
  // > 0: there are no rows of values, but the first so many elements of a key are its value (latent
  // attention); `v` and `v_scale` are the keys' handles.
  int64_t values_in_keys = 0;

  int64_t value_dim() const { return values_in_keys > 0 ? values_in_keys : v.shape(3); }
  // All of them, for the inputs and outputs of graph nodes.
  std::vector<mx::array> arrays() const;
  // What a node gives that writes all of them in place and has them as its first inputs.
  struct Outputs {
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    std::vector<int> alias;  // as KernelSpec has it
  };
  Outputs outputs() const;
  // A pool with rows of values from new handles: those at [first, first + arrays().size()).
  static PagedKv from(const std::vector<mx::array>& arrays, size_t first = 0);
};

// An uninitialised pool of `num_blocks` blocks (pages are committed when they are first written),
// of `dtype` or quantised. value_dim 0: as head_dim. Without a device it is the host's.
PagedKv make_paged_kv(int64_t num_blocks, int64_t block_size, int64_t kv_heads, int64_t head_dim,
                      mx::Dtype dtype, KvStorage storage = KvStorage::kAuto, int64_t value_dim = 0,
                      Device* device = nullptr);

// A pool of the host as one of narrower keys and values of the same bytes in all, in `parts` times
// as many blocks: block b of the pool is blocks b * parts and on. The memory is the same, but for
// scales, which are new. Throws std::invalid_argument unless heads * dim fit parts times.
PagedKv narrow_kv(const PagedKv& pool, int64_t kv_heads, int64_t head_dim);

// A pool of one head whose values are the first value_dim elements of its keys.
PagedKv make_latent_kv(int64_t num_blocks, int64_t block_size, int64_t dim, int64_t value_dim,
                       mx::Dtype dtype, KvStorage storage = KvStorage::kAuto,
                       Device* device = nullptr);
// Its handles.
PagedKv latent_kv(mx::array rows, std::optional<mx::array> scale, int64_t value_dim);

// Bytes of a token's keys and values in a pool of make_paged_kv, or of its row in one of
// make_latent_kv.
int64_t paged_kv_token_bytes(int64_t kv_heads, int64_t head_dim, mx::Dtype dtype,
                             KvStorage storage);
int64_t kv_scale_bytes(int64_t kv_heads, KvStorage storage);  // of these, what scales take
int64_t latent_kv_token_bytes(int64_t dim, mx::Dtype dtype, KvStorage storage);

// Throws std::invalid_argument, naming kv.k and so on, unless shapes and dtypes fit together.
KvType check_paged_kv(std::string_view op, const PagedKv& kv, int64_t block_size);
// The same for what writes rows of values: throws for a pool that has none, too.
KvType check_kv_with_values(std::string_view op, const PagedKv& kv, int64_t block_size);
// Throws std::invalid_argument unless there is a slot for each token, negative or within the pool.
void check_slots(std::string_view op, const PagedKv& kv, const BatchLayout& layout);

}  // namespace quire::ops
