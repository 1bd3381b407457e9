#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/scheduler.h"
#include "models/model.h"

namespace quire::engine {

// What the operator asked for; 0 means "choose".
struct MemoryRequest {
  int64_t kv_cache_bytes = 0;  // --kv-cache-memory
  int64_t num_blocks = 0;      // --num-gpu-blocks-override; wins over kv_cache_bytes
  int64_t max_model_len = 0;   // --max-model-len
};

// What memory goes where, in bytes; printed at start-up.
struct MemoryBudget {
  int64_t available = 0;  // free for this process after the weights were loaded
  int64_t weights = 0, kv_cache = 0, activations = 0;
  int64_t num_blocks = 0, max_model_len = 0;
  std::string summary() const;  // one line
};

// Memory that this process may still take, in bytes: MemAvailable, or what its cgroup (v1 or v2)
// leaves, whichever is less.
int64_t available_memory();

// Sizes the KV pool: what is asked for; else half of what is available less the activations, but no
// more than all max_num_seqs sequences at full length need. Throws LoadError with the remedy if the
// asked max_model_len does not fit; without
// --max-model-len the length is cut to what fits.
MemoryBudget plan_memory(const models::Model& model, const SchedulerOptions& options,
                         const MemoryRequest& request);

}  // namespace quire::engine
