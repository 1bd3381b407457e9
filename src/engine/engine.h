#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_stats.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "models/model.h"

namespace quire::engine {

struct EngineOptions {
  SchedulerOptions scheduler;
  bool lookahead = true;       // launch step t+1 before step t's tokens are read
  bool join_kernels = true;    // one graph node for all kernels of a step; false: to measure
  uint64_t seed = 0;           // of requests that bring none
  int64_t max_waiting = 4096;  // requests queued beyond this are refused as overloaded
  ops::KvStorage kv_storage = ops::KvStorage::kAuto;  // of the KV pools
  // How much of the KV pools, beyond what was ever used, is committed while the engine is idle: at
  // most so many tokens, so many bytes, and a quarter. The system takes its time to give memory
  // that is touched for the first time.
  int64_t ready_kv_tokens = 16384;
  int64_t ready_kv_bytes = int64_t{2} << 30;
  bool check_integrity = false;  // after every step (tests)
};

// Runs all requests on one model. One thread owns MLX and does everything else than submit, abort
// and stats, which any thread may call. Each step is plan, build, run, commit (engine.cpp).
class Engine {
 public:
  Engine(std::unique_ptr<models::Model> model, EngineOptions options);
  ~Engine();  // aborts what is left
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Queues a request. Its sink gets events until one has `finish`; on an error it is never called.
  Result<RequestId, RequestError> submit(Request request);
  // Several at once, all or none (the n completions of one prompt).
  Result<std::vector<RequestId>, RequestError> submit_all(std::vector<Request> requests);
  // Ends a request with FinishReason::kAbort, within one step. Unknown or finished ids are ignored.
  void abort(RequestId id);

  EngineStats stats() const;
  int64_t max_model_len() const;
  int64_t vocab_size() const;

  // Refuses new requests, waits up to `timeout` for the running ones, then aborts the rest. Returns
  // when none is left.
  void shutdown(std::chrono::milliseconds timeout);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::engine
