#pragma once
#include <cstdint>
#include <vector>

#include "engine/cache_groups.h"
#include "engine/scheduler.h"
#include "ops/layout/recurrent_state.h"
#include "ops/runtime/context.h"

namespace quire::engine {

namespace mx = mlx::core;

// How much there is of what layers keep.
struct CacheSize {
  int64_t num_blocks = 0, block_size = 0;  // of keys and values
  int64_t num_state_slots = 0;             // of recurrent state, checkpoints included
  ops::KvStorage kv_storage = ops::KvStorage::kAuto;
};

// What all layers keep between steps: keys and values in pools, all with the same blocks, that
// layers share as CacheGroups says; of gated-delta-net layers one state pool each, all with the
// same slots. Allocated once; pages are committed as they are first written.
class KvPool {
 public:
  KvPool(const std::vector<models::CacheSpec>& layers, const CacheGroups& groups,
         const CacheSize& size, mx::Dtype dtype, ops::Device& device);

  // The handles that the next step must read and replace: one of each layer. Those of layers that
  // share a pool are of the same memory and follow each other in no order: no block is of two
  // tables, and a step's layers run one after another. A layer that reads the keys and values of
  // another has one, too, which nobody uses.
  std::vector<ops::LayerCache>& caches() { return caches_; }
  // Back to the handles of the pools as they were allocated: the same memory, and evaluated. For
  // when a step that used the others was launched and orders what follows by itself.
  void reset_handles() { caches_ = first_; }
  // The arrays of those handles, to wait for.
  std::vector<mx::array> arrays() const;

  // Commits memory of the first `num_blocks` blocks, one layer's huge page at a time; false if
  // nothing was left to do. One thread at a time.
  bool commit_some(int64_t num_blocks);
  int64_t committed_blocks() const { return committed_blocks_; }  // in every layer
  int64_t bytes_per_block() const { return bytes_per_block_; }    // of all pools
  // For build_batch.
  const TableViews& table_views() const { return views_; }

  // Copies recurrent states between slots, in every layer that has one; lazily, as a model's step.
  void copy_states(const ops::Context& context, const std::vector<StateCopy>& copies);

  // Bytes of one block over all pools, scales of quantised ones included.
  static int64_t block_bytes(const CacheGroups& groups, int64_t block_size, mx::Dtype dtype,
                             ops::KvStorage storage);
  // Bytes of one slot over all layers with a recurrent state; 0: there are none.
  static int64_t state_bytes(const std::vector<models::CacheSpec>& layers, mx::Dtype dtype);

 private:
  std::vector<ops::LayerCache> caches_, first_;
  std::vector<bool> is_used_;         // of each handle
  std::vector<mx::array> kv_arrays_;  // of the KV pools: [N, ...]
  TableViews views_;
  int64_t bytes_per_block_ = 0, committed_blocks_ = 0, num_blocks_;
  size_t next_to_commit_ = 0;  // of kv_arrays_
  bool is_lazy_;               // the host's: pages cost memory once they are written
};

}  // namespace quire::engine
