#pragma once
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/engine.h"
#include "engine/kv_pool.h"
#include "engine/step_timer.h"
#include "models/model.h"
#include "ops/sample/sample.h"

namespace quire::engine {

// The engine thread's work: schedules, runs and commits steps, and tells requests about their
// tokens. All methods but the constructor run on that thread, which owns the MLX stream.
class StepRunner {
 public:
  StepRunner(const models::Model& model, const EngineOptions& options);

  void start();  // first call on the engine thread
  void stop();   // last one: gives up what belongs to the thread's stream

  void add(SequencePtr sequence);
  void abort(RequestId id);
  void abort_all();
  void fail_all(const std::string& reason);

  bool has_work() const { return scheduler_.has_work() || in_flight_.has_value(); }
  // Plans, builds, runs and commits one step. With lookahead, step t+1 is launched before step t's
  // tokens are read. A step that throws ends its requests with an error; only if the memory pools
  // cannot be rebuilt does the exception escape.
  void step();
  // While there is nothing to do: gets memory ready for the requests to come, a few milliseconds'
  // worth. False: enough is ready.
  bool prepare_memory();
  void check_idle() const { scheduler_.check_integrity(); }
  void fill(EngineStats& stats) const;

 private:
  // What a sequence needs beside the scheduler's view of it.
  struct Generation {
    SequencePtr sequence;
    TokenHistory history;
    std::vector<TokenLogprob> prompt_logprobs;
    bool told = false;    // whether an event was sent
    std::string failure;  // why the next row yields no token, if it is known
  };
  // A launched step whose tokens have not been read.
  struct InFlight {
    StepPlan plan;
    Batch batch;
    std::optional<mx::array> logits;          // until they are sampled
    std::optional<ops::SampleOutput> output;  // absent without sampled rows
    std::optional<mx::array> done;            // of the step's kernel graph, if it is one
    std::shared_ptr<const void> resources;    // freed here, not between kernels
    ops::StepKind kind = {};
  };

  bool needs_known_tokens(const Batch& batch, const StepPlan& plan) const;
  InFlight launch(StepPlan plan);
  void launch_graph(InFlight& step);
  void sample_rows(InFlight& step, const std::optional<mx::array>& previous);
  void launch_late_sampler(InFlight& step);
  void finish_in_flight();
  void commit(InFlight& step);
  void commit_token(const CommittedToken& token, const InFlight& step, size_t row);
  void collect_prompt_logprobs(const InFlight& step);
  TokenLogprob logprob_of_row(const InFlight& step, size_t row, int32_t num_top) const;
  void tell(Generation& generation, TokenEvent event);
  void end(RequestId id, FinishReason reason, std::string error = "");
  void end_without_token(RequestId id);
  void make_pool();
  void recover(const std::string& reason);

  const models::Model& model_;
  const EngineOptions& options_;
  Scheduler scheduler_;
  std::optional<KvPool> pool_;
  std::unordered_map<RequestId, Generation> generations_;
  std::optional<InFlight> in_flight_;
  StepTimer timer_;
  std::optional<ThreadPool::Busy> busy_;  // while there is work: the pool's workers stay awake
  StepTokens step_tokens_;
  int64_t steps_ = 0, prompt_tokens_ = 0, generation_tokens_ = 0;
};

}  // namespace quire::engine
