#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

namespace quire::server {

// What /health and /metrics show of the engine; the fields are those of engine::EngineStats.
struct EngineStatus {
  bool healthy = true;
  std::string failure;
  int64_t running = 0, waiting = 0;
  int64_t total_blocks = 0, used_blocks = 0, cached_blocks = 0;
  int64_t preemptions = 0, prefix_queries = 0, prefix_hits = 0;
  int64_t steps = 0, prompt_tokens = 0, generation_tokens = 0;
  std::map<std::string, int64_t> kernel_runs;
};

// The engine as the server needs it, so that the server and its tests build without MLX. See
// engine::Engine for what each call promises. Any thread may call.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  virtual Result<std::vector<engine::RequestId>, engine::RequestError> submit_all(
      std::vector<engine::Request> requests) = 0;
  virtual void abort(engine::RequestId id) = 0;
  virtual EngineStatus status() const = 0;
  virtual int64_t max_model_len() const = 0;
  virtual int64_t vocab_size() const = 0;
};

}  // namespace quire::server
