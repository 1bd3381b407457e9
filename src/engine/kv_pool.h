#pragma once
#include <cstdint>
#include <vector>

#include "engine/scheduler.h"
#include "models/layer_spec.h"
#include "ops/context.h"
#include "ops/recurrent_state.h"

namespace quire::engine {

namespace mx = mlx::core;

// How much there is of what layers keep.
struct CacheSize {
  int64_t num_blocks = 0, block_size = 0;  // of keys and values
  int64_t num_state_slots = 0;             // of recurrent state, checkpoints included
  ops::KvStorage kv_storage = ops::KvStorage::kAuto;
};

// What all layers keep between steps: of attention layers one K and one V pool each, all with the
// same blocks, so that one block table serves every layer; of gated-delta-net layers one state pool
// each, all with the same slots. Allocated once; pages are committed as they are first written.
class KvPool {
 public:
  KvPool(const std::vector<models::CacheSpec>& layers, const CacheSize& size, mx::Dtype dtype);

  // The handles that the next step must read and replace.
  std::vector<ops::LayerCache>& caches() { return caches_; }
  // The arrays of those handles, to wait for.
  std::vector<mx::array> arrays() const;

  // Copies recurrent states between slots, in every layer that has one; lazily, as a model's step.
  void copy_states(const ops::Context& context, const std::vector<StateCopy>& copies);

  // Bytes of one block over all attention layers, scales of quantised pools included.
  static int64_t block_bytes(const std::vector<models::CacheSpec>& layers, int64_t block_size,
                             mx::Dtype dtype, ops::KvStorage storage);
  // Bytes of one slot over all layers with a recurrent state; 0: there are none.
  static int64_t state_bytes(const std::vector<models::CacheSpec>& layers, mx::Dtype dtype);

 private:
  std::vector<ops::LayerCache> caches_;
};

}  // namespace quire::engine
