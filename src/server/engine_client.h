#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_stats.h"
#include "engine/request.h"

namespace quire::server {

// The engine as the server needs it, so that the server and its tests build without MLX. See
// engine::Engine for what each call promises. Any thread may call.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  virtual Result<std::vector<engine::RequestId>, engine::RequestError> submit_all(
      std::vector<engine::Request> requests) = 0;
  virtual void abort(engine::RequestId id) = 0;
  virtual engine::EngineStats stats() const = 0;
  virtual int64_t max_model_len() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t hidden_size() const = 0;    // of embeddings
  virtual bool honours_priority() const = 0;  // of requests: the priority policy is on
};

}  // namespace quire::server
