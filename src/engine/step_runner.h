#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/commit_ahead.h"
#include "engine/decode_replay.h"
#include "engine/engine.h"
#include "engine/kept_logits.h"
#include "engine/kv_pool.h"
#include "engine/mask_workers.h"
#include "engine/pooler.h"
#include "engine/step_timer.h"
#include "models/model.h"
#include "ops/runtime/launched_step.h"
#include "ops/sample/sample.h"

namespace quire::engine {

// What a sequence needs beside the scheduler's view of it; what every step reads comes first.
struct Generation {
  SequencePtr sequence;
  TokenSink sink = nullptr;               // of its request
  MaskWorkers::RowPtr grammar = nullptr;  // null: unconstrained
  bool told = false;                      // whether an event was sent
  std::vector<TokenLogprob> prompt_logprobs = {};
  TokenHistory history = {};
  std::optional<Pooler> pooler = {};  // of a request that pools
  TokenMask failure = {};             // why the next row yields no token, if it is known
};

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
  // tokens are read. A step that throws ends its requests with an error; only if the device is lost
  // or the memory pools cannot be rebuilt does the exception escape.
  void step();
  // Without work nothing is held: aborts the process (QUIRE_CHECK) if blocks, slots or requests are
  // left over. With EngineOptions::check_integrity the scheduler checks everything.
  void check_idle() const;
  // Whether the thread pool's workers watch for the next kernel: only while there is work.
  bool keeps_pool_awake() const { return busy_.has_value(); }
  QueueMoves queue_moves() const { return {scheduler_.stats().started, scheduler_.stats().ended}; }
  void fill(EngineStats& stats) const;
  LoadByTenant waiting_by_tenant() const { return scheduler_.waiting_by_tenant(); }

 private:
  // A launched step whose tokens have not been read.
  struct InFlight {
    StepPlan plan;
    Batch batch;
    std::optional<mx::array> logits;           // until they are sampled
    std::optional<mx::array> states = {};      // of batch.states
    ops::SampleRows samples = nullptr;         // what `output` was sampled by
    std::optional<ops::SampleOutput> output;   // absent without sampled rows
    std::optional<ops::LaunchedStep> kernels;  // absent: MLX's way, see launch_graph
    std::vector<size_t> postponed;             // rows whose masks were not there
    std::vector<KeptLogits::Place> kept = {};  // where their logits are
    ops::StepKind kind = {};
    bool is_replay = false;
    TimePoint launched = {};
    bool states_read = false;  // before the sampler was launched

    std::vector<mx::array> yields() const;
    void take(std::span<const mx::array> arrays);
  };
  // What the thread does for replayed steps. The first one behind other steps is launched while
  // the driver still takes their kernels: it says nothing. Nor does one that reads the last token
  // of prompts whose others were cached: there the thread has let requests in.
  struct ReplayTime {
    int64_t steps = 0, steady = 0;  // all, and those behind another one
    // Of the steady ones, without what the thread waited: seconds, and those of the processor.
    double host = 0, host_cpu = 0;
    double waited = 0, waited_cpu = 0;  // in all steps
    bool was_last = false;              // the last step was one
  };
  // A row whose mask was not there when its step was sampled: it sits out until it is.
  struct PostponedRow {
    StepItem item;
    RowInfo row;
    KeptLogits::Place logits;
  };

  void run_step();
  std::vector<MaskWorkers::RowPtr> grammars_of(const InFlight& step) const;
  bool masks_are_missing(const InFlight& step) const;
  void request_first_masks(const InFlight& step);
  void wait_for_masks(const InFlight& step);
  std::shared_ptr<const std::vector<uint32_t>> mask_of(InFlight& step, size_t row);
  std::vector<mx::array> keep_logits(InFlight& step);
  void keep_postponed_rows(InFlight& step);
  std::optional<InFlight> launch_postponed_rows();
  void wait_for_postponed_rows();
  InFlight launch(StepPlan plan);
  void build_graph(InFlight& step, const std::optional<mx::array>& previous);
  void launch_graph(InFlight& step);
  bool replay(InFlight& step, const std::optional<mx::array>& previous);
  void count_replay(double seconds, double cpu_seconds);  // of the host, for the step in flight
  std::shared_ptr<std::vector<ops::SampleRow>> take_sample_rows(size_t count);
  ops::SampleRows sample_rows(InFlight& step);
  void add_sampler(InFlight& step, const std::optional<mx::array>& previous);
  void launch_late_sampler(InFlight& step);
  void finish_in_flight();
  void observe(const InFlight& step);
  void commit(InFlight& step);
  void wait_for_output(InFlight& step);  // until the host can read what the step yields
  void launch_sampler(InFlight& step, const std::vector<mx::array>& kept);
  static void read_states_early(InFlight& step);
  void collect_states(const InFlight& step);
  static void give_pooled(Pooler& pooler, TokenEvent& event);
  static void prefetch(const InFlight& step);
  void commit_rows(InFlight& step);
  void commit_postponed(InFlight& step);
  void commit_token(const CommittedToken& token, Generation& generation, const InFlight& step,
                    size_t row);
  void collect_scores(const InFlight& step);
  TokenLogprob logprob_of_row(const InFlight& step, size_t row, int32_t num_top) const;
  void tell(Generation& generation, TokenEvent&& event);
  void end(RequestId id, FinishReason reason, std::string error = "");
  void forget(RequestId id);
  void end_without_token(RequestId id, const ops::SampleRow& sample);
  void fit(const char* what, const std::string& flags, const std::function<void()>& take) const;
  void make_pool();
  void make_replay();
  void plan_memory();
  void recover(const std::string& reason);

  const models::Model& model_;
  const EngineOptions& options_;
  Scheduler scheduler_;
  std::optional<KvPool> pool_;
  std::optional<CommitAhead> commit_ahead_;  // of the pool
  std::optional<DecodeReplay> replay_;       // of the pool; absent: every step is launched anew
  std::unordered_map<RequestId, Generation> generations_;
  int64_t num_grammars_ = 0;  // of generations_: mostly 0, and then no row looks for its own
  std::optional<InFlight> in_flight_;
  std::vector<std::shared_ptr<std::vector<ops::SampleRow>>> sample_rows_;  // of the last steps
  KeptLogits kept_logits_;  // of those in flight, and of these
  std::vector<PostponedRow> postponed_;
  MaskWorkers mask_workers_;
  StepTimer timer_;
  ReplayTime replay_time_;
  TimePoint last_done_;                   // when the last step's result was there
  std::optional<ThreadPool::Busy> busy_;  // while there is work: the pool's workers stay awake
  StepTokens step_tokens_;
  int64_t steps_ = 0, prompt_tokens_ = 0, generation_tokens_ = 0, postponed_rows_ = 0;
};

}  // namespace quire::engine
