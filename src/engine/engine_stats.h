#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/adapter_loads.h"
#include "ops/runtime/device_counters.h"

namespace quire::engine {

// How many tokens, of prompts and produced ones, the steps have fed.
struct StepTokens {
  // vLLM's buckets (vllm/v1/metrics/loggers.py), each up to and with its bound.
  static constexpr std::array<int64_t, 13> kBounds = {1,   8,    16,   32,   64,   128,  256,
                                                      512, 1024, 2048, 4096, 8192, 16384};
  std::array<int64_t, kBounds.size() + 1> counts = {};  // not cumulative; the last is beyond
  int64_t sum = 0;

  void observe(int64_t tokens) {
    const auto bound = std::lower_bound(kBounds.begin(), kBounds.end(), tokens);
    ++counts[static_cast<size_t>(bound - kBounds.begin())];
    sum += tokens;
  }
};

// A snapshot for /metrics and /health.
struct EngineStats {
  bool healthy = true;
  std::string failure;                             // why not
  std::string device = "cpu", device_description;  // as ops::Device has them
  int64_t running = 0, waiting = 0;
  int64_t waiting_tokens = 0;                // of the waiting requests' prompts
  std::vector<AdapterLoads::Load> adapters;  // by index, as far as any was asked for
  int64_t total_blocks = 0, used_blocks = 0, cached_blocks = 0;
  int64_t touched_blocks = 0;  // up to the last one that was ever used
  int64_t preemptions = 0, prefix_queries = 0, prefix_hits = 0;
  int64_t prefix_evictions = 0;  // cached blocks that were given up for others
  // Recurrent state: slots of running sequences and of checkpoints; `held` ones are saved to by a
  // launched step and not known to the prefix cache yet.
  int64_t state_slots = 0, used_state_slots = 0;
  int64_t state_checkpoints = 0, used_state_checkpoints = 0, held_state_checkpoints = 0;
  int64_t state_saves = 0, state_restores = 0;
  int64_t block_size = 0;
  bool prefix_caching = false;
  std::string kv_cache_dtype = "auto";  // as --kv-cache-dtype
  StepTokens step_tokens;
  int64_t steps = 0, prompt_tokens = 0, generation_tokens = 0;
  // Recorded steps (DecodeReplay), those of them behind another one and without prompts, and the
  // engine thread's time for these, waiting not included: by the clock, and of the processor.
  int64_t replayed_steps = 0, steady_replays = 0;
  double replay_host_seconds = 0, replay_host_cpu_seconds = 0;
  ops::DeviceCounters device_counters;
  int64_t postponed_rows = 0;  // that sat steps out because a grammar's mask was late
  std::map<std::string, int64_t> kernel_runs;  // "op/kernel"
};

}  // namespace quire::engine
