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
  SchedulerOptions scheduler;      // `windows` follow from the model
  bool lookahead = true;           // launch step t+1 before step t's tokens are read
  bool join_kernels = true;        // one graph node for all kernels of a step; false: to measure
  bool replay_decodes = true;      // where the device records steps (DecodeReplay)
  bool give_back_blocks = true;    // that windows leave behind; false: to compare (tests)
  uint64_t seed = 0;               // of requests that bring none
  int64_t max_waiting = 4096;      // requests that would wait beyond this are refused as overloaded
  int64_t max_waiting_tokens = 0;  // the same for the tokens of their prompts; 0: no limit
  ops::KvStorage kv_storage = ops::KvStorage::kAuto;  // of the KV pools
  // How much of the KV pools, beyond what was ever used, is committed ahead (CommitAhead); see
  // MemoryBudget::ready_kv. 0: none.
  int64_t ready_kv_bytes = 0;
  bool check_integrity = false;            // after every step, and when idle (tests)
  std::function<void()> before_mask = {};  // called on a worker before each grammar mask (tests)
};

// Runs all requests on one model. One thread owns MLX and does everything else than submit, abort
// and stats, which any thread may call. Each step is plan, build, run, commit (engine.cpp).
class Engine {
 public:
  // Makes the memory pools, and on a GPU what steps need. Throws std::exception if there is no
  // room for them.
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
  int64_t hidden_size() const;    // of what pooling yields
  bool honours_priority() const;  // Request::priority counts: the policy is kPriority

  // Refuses new requests, waits up to `timeout` for the running ones, then aborts the rest. Returns
  // when none is left.
  void shutdown(std::chrono::milliseconds timeout);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::engine
