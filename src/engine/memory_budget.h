#pragma once
#include <mlx/mlx.h>

#include <cstdint>
#include <string>

#include "engine/scheduler.h"
#include "models/model.h"

namespace quire::engine {

namespace mx = mlx::core;

// What the operator asked for; 0 means "choose".
struct MemoryRequest {
  int64_t kv_cache_bytes = 0;      // --kv-cache-memory
  int64_t num_blocks = 0;          // --num-gpu-blocks-override; wins over kv_cache_bytes
  int64_t max_model_len = 0;       // --max-model-len
  int64_t state_checkpoints = -1;  // --state-checkpoint-slots; -1: choose
  ops::KvStorage kv_storage = ops::KvStorage::kAuto;  // --kv-cache-dtype
  double gpu_memory_utilization = 0;                  // see memory_for_others
  // What memory_for_others says before weights are loaded: free memory that is not to be taken.
  int64_t kept_free = 0;
};

// What memory goes where, in bytes; printed at start-up.
struct MemoryBudget {
  int64_t available = 0;  // free for this process after the weights were loaded
  int64_t limit = 0;      // of a device's own memory, what this process may have; 0: the host's
  bool is_lazy = true;    // the host's: pools take memory as they are written
  int64_t weights = 0, kv_cache = 0, activations = 0;
  int64_t ready_kv = 0;  // of kv_cache: committed ahead of its use, at most
  int64_t num_blocks = 0, max_model_len = 0;
  // Of a model with recurrent layers: slots for running sequences and for checkpoints, and what one
  // takes over all layers, convolution and recurrent state.
  int64_t state_slots = 0, state_checkpoints = 0, state_slot_bytes = 0;
  int64_t state() const { return (state_slots + state_checkpoints) * state_slot_bytes; }
  std::string summary() const;  // one line
};

// Memory that this process may still take, in bytes: MemAvailable, or what its cgroup (v1 or v2)
// leaves, whichever is less. Files that the system only keeps in memory because they were read
// count as free. `root`: before the paths of the system's files (tests).
int64_t available_memory(const std::string& root = "");
// Memory that a device may still take for weights and pools: the host's, or its own.
int64_t available_memory(ops::Device& device);

// Bytes of a GPU's free memory that are not for this process, asked for before anything is loaded.
// This process may have --gpu-memory-utilization (0: 0.9) of the whole memory, as in vLLM; with a
// cache of asked size and no utilization all that is free. 0 for the host. Throws LoadError if the
// GPU has less than that left.
int64_t memory_for_others(ops::Device& device, const MemoryRequest& request);

// Rows of logits in the largest step: of every sequence, and of prompts whose log-probabilities are
// asked for.
int64_t most_rows(const SchedulerOptions& options);

// Buffers alive at once in a step, in bytes: a few activations of the widest layer (elements per
// token), and logits: of every sequence of two steps, and of those that wait for masks. On a GPU
// also those of prompts, and the most that attention takes (ops::most_attention_bytes), both for
// steps that are recorded and for others.
int64_t activation_bytes(const std::vector<models::CacheSpec>& caches, int64_t widest_activation,
                         int64_t vocab, mx::Dtype dtype, const SchedulerOptions& options,
                         bool is_gpu);

// Sizes the pools from what is available less the activations: half of it in the host's memory, all
// of it in a device's own. Recurrent state comes first:
// a slot for each of max_num_seqs sequences, or as many as half of that holds (at least one; who
// finds none free waits), and if prefixes are cached, checkpoints in a quarter of it or as many as
// asked for. The KV pool gets what is asked for, else the rest, but no more than useful: all
// max_num_seqs sequences at full length, and with a prefix cache as much again and 16 sequences.
// What is made ready ahead follows the model: no more than its weights take, memory for 16,384
// tokens, a quarter of the pool and 2 GiB. Throws LoadError with the remedy if the
// asked max_model_len does not fit; without
// --max-model-len the length is cut to what fits.
MemoryBudget plan_memory(const models::Model& model, const SchedulerOptions& options,
                         const MemoryRequest& request);

}  // namespace quire::engine
