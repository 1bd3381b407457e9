#pragma once
#include <cstdint>
#include <map>
#include <string>

namespace quire::engine {

// A snapshot for /metrics and /health.
struct EngineStats {
  bool healthy = true;
  std::string failure;  // why not
  int64_t running = 0, waiting = 0;
  int64_t total_blocks = 0, used_blocks = 0, cached_blocks = 0;
  int64_t preemptions = 0, prefix_queries = 0, prefix_hits = 0;
  int64_t steps = 0, prompt_tokens = 0, generation_tokens = 0;
  std::map<std::string, int64_t> kernel_runs;  // "op/kernel"
};

}  // namespace quire::engine
