#include "engine/step_runner.h"

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "engine/kv_storage_names.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/runtime/array_memory.h"

namespace quire::engine {
namespace {

constexpr int kMaxMaskWorkers = 8;
constexpr int kLightMaskWorkers = 1;

// For a bug that nobody knows: who is there, and what it could have had.
std::string describe_standstill(const Scheduler& scheduler) {
  std::ostringstream text;
  text << "nothing can be scheduled (" << scheduler.num_running() << " requests run, "
       << scheduler.num_waiting() << " wait, " << scheduler.blocks().num_available() << " of "
       << scheduler.blocks().num_blocks() << " blocks are available)";
  return text.str();
}

}  // namespace

StepRunner::StepRunner(const models::Model& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      scheduler_(options.scheduler),
      kept_logits_(options.scheduler.max_num_seqs, model.vocab_size()),
      mask_workers_(std::clamp(model.context().pool->num_threads() / 2, 1, kMaxMaskWorkers),
                    model.vocab_size(), options.before_mask, kLightMaskWorkers),
      timer_(model.context().profile.get()) {}

void StepRunner::start() {
  if (!model_.context().device->metal()) mx::set_default_device(mx::Device::cpu);
  // Freed memory is kept for the next step, as that of kernels is; the sanitizer must see it go.
  mx::set_cache_limit(ops::ArrayMemory::kDefaultCacheLimit);
  const std::string caches = model_.context().device->host_memory()
                                 ? "--kv-cache-memory"
                                 : "--kv-cache-memory or --gpu-memory-utilization";
  fit("the KV cache", caches, [&] { make_pool(); });
  fit("the largest step", "--max-num-batched-tokens, --max-num-seqs, " + caches,
      [&] { plan_memory(); });
  fit("recorded decode steps", "--max-num-seqs, " + caches, [&] {
    make_replay();
    if (replay_) replay_->record_all();
  });
}

// Takes memory for `what`. Throws LoadError with the flags to lower if there is none.
void StepRunner::fit(const char* what, const std::string& flags,
                     const std::function<void()>& take) const {
  try {
    take();
  } catch (const std::exception& error) {
    if (model_.context().device->is_lost()) throw;
    throw LoadError("there is no room for " + std::string(what) + ": " + error.what() + "; lower " +
                    flags);
  }
}

void StepRunner::make_pool() {
  const SchedulerOptions& scheduler = options_.scheduler;
  commit_ahead_.reset();
  replay_.reset();
  const CacheGroups groups =
      options_.give_back_blocks ? groups_of(model_) : one_table(model_.cache_specs());
  QUIRE_CHECK(scheduler.windows == groups.windows) << scheduler.windows.size() << " block tables";
  pool_.emplace(
      model_.cache_specs(), groups,
      CacheSize{.num_blocks = scheduler.num_blocks,
                .block_size = scheduler.block_size,
                .num_state_slots = scheduler.num_state_slots + scheduler.num_state_checkpoints,
                .kv_storage = options_.kv_storage},
      model_.dtype(), *model_.context().device);
  const int64_t block_bytes = pool_->bytes_per_block();
  if (block_bytes > 0 && options_.ready_kv_bytes > 0)
    commit_ahead_.emplace(*pool_, options_.ready_kv_bytes / block_bytes);
}

void StepRunner::stop() {
  in_flight_.reset();
  commit_ahead_.reset();
  replay_.reset();
  postponed_.clear();
  kept_logits_.release();
  pool_.reset();
  try {
    mx::synchronize();
    model_.context().device->synchronize();
  } catch (const std::exception&) {
    // A failed step's error, which its requests were told.
  }
}

void StepRunner::check_idle() const {
  QUIRE_CHECK(generations_.empty()) << generations_.size() << " requests are left over";
  QUIRE_CHECK(scheduler_.blocks().num_owned() == 0) << scheduler_.blocks().num_owned();
  QUIRE_CHECK(scheduler_.state_slots().num_used() == 0) << scheduler_.state_slots().num_used();
  QUIRE_CHECK(scheduler_.state_checkpoints().num_held() == 0);
  if (options_.check_integrity) scheduler_.check_integrity();
}

void StepRunner::add(SequencePtr sequence) {
  const RequestId id = sequence->id;
  Generation& generation = generations_[id];
  generation.sequence = sequence;
  sequence->generation = &generation;
  generation.sink = std::move(sequence->request.sink);
  if (sequence->request.grammar) {
    generation.grammar =
        mask_workers_.add(std::move(sequence->request.grammar), sequence->request.tenant);
    ++num_grammars_;
  }
  if (sequence->request.pooling) generation.pooler.emplace(sequence->request.pooling->kind);
  scheduler_.add(std::move(sequence));
}

void StepRunner::abort(RequestId id) { end(id, FinishReason::kAbort); }

void StepRunner::abort_all() {
  while (!generations_.empty()) end(generations_.begin()->first, FinishReason::kAbort);
}

void StepRunner::fail_all(const std::string& reason) {
  while (!generations_.empty()) end(generations_.begin()->first, FinishReason::kError, reason);
}

void StepRunner::step() {
  if (!busy_) busy_.emplace(*model_.context().pool);
  try {
    run_step();
  } catch (const std::exception& error) {
    recover(error.what());
  }
  if (!has_work()) {
    busy_.reset();
    sample_rows_.clear();  // they have lists of requests
  }
  if (commit_ahead_) commit_ahead_->update(scheduler_.blocks().high_water(), has_work());
  if (options_.check_integrity) scheduler_.check_integrity();
}

void StepRunner::run_step() {
  timer_.start(!in_flight_);
  const TimePoint start = Clock::now();
  const double cpu_start = thread_cpu_seconds();
  const auto [waited, waited_cpu] = std::pair(replay_time_.waited, replay_time_.waited_cpu);
  StepPlan plan = scheduler_.plan();
  if (plan.empty()) {
    const bool can_go_on = in_flight_ || !postponed_.empty() || !scheduler_.has_work();
    if (!can_go_on) throw std::logic_error(describe_standstill(scheduler_));
    finish_in_flight();
    return wait_for_postponed_rows();
  }
  std::optional<InFlight> postponed = launch_postponed_rows();
  InFlight next = launch(std::move(plan));  // reads the tokens of the step in flight on the device
  finish_in_flight();
  if (postponed) commit_postponed(*postponed);
  timer_.choose(next.kind);
  if (!next.output && !next.batch.rows.empty()) launch_late_sampler(next);
  in_flight_ = std::move(next);
  if (!options_.lookahead) finish_in_flight();
  count_replay(seconds_since(start) - (replay_time_.waited - waited),
               thread_cpu_seconds() - cpu_start - (replay_time_.waited_cpu - waited_cpu));
}

StepRunner::InFlight StepRunner::launch(StepPlan plan) {
  const ops::StepKind kind = StepTimer::kind_of(plan);
  timer_.choose(kind);
  timer_.lap(ops::Phase::kPlan);
  const TimePoint now = Clock::now();
  for (const StepItem& item : plan.items)
    if (item.sequence->stats.scheduled == TimePoint{}) item.sequence->stats.scheduled = now;
  ++steps_;
  step_tokens_.observe(plan.num_tokens);
  const int64_t bucket = replay_ ? replay_->bucket_of(plan) : 0;
  Batch batch =
      build_batch(plan, options_.scheduler, model_.vocab_size(), bucket, pool_->table_views());
  timer_.lap(ops::Phase::kBatch);
  std::optional<mx::array> previous;
  if (in_flight_ && in_flight_->output) previous = in_flight_->output->tokens;
  InFlight step{.plan = std::move(plan),
                .batch = std::move(batch),
                .logits = {},
                .states = {},
                .output = {},
                .kernels = {},
                .postponed = {},
                .kept = {},
                .kind = kind,
                .is_replay = false,
                .launched = Clock::now()};
  request_first_masks(step);
  if (bucket == 0 || !replay(step, previous)) {
    if (bucket > 0) step.batch.layout = ops::with_own_tables(*step.batch.layout);
    build_graph(step, previous);
    launch_graph(step);
  }
  timer_.lap(ops::Phase::kLaunch);
  return step;
}

void StepRunner::build_graph(InFlight& step, const std::optional<mx::array>& previous) {
  const Batch& batch = step.batch;
  const auto& ids = *batch.ids;
  const mx::array tokens =
      batch.feeds_pending ? ops::resolve_tokens(model_.context(), batch.ids, batch.from, *previous)
                          : model_.context().device->make_array(
                                ids.data(), {static_cast<int>(ids.size())}, mx::int32);
  pool_->copy_states(model_.context(), step.plan.restores);
  models::StepOutput computed = model_.forward(tokens, batch.layout, pool_->caches());
  pool_->copy_states(model_.context(), step.plan.saves);
  step.logits = std::move(computed.logits);
  step.states = std::move(computed.states);
  timer_.lap(ops::Phase::kGraph);
  // A mask that is not there yet is waited for while the forward pass runs.
  if (!batch.rows.empty() && (step.samples || !masks_are_missing(step)))
    add_sampler(step, previous);
}

// Puts the step on the stream: one node that runs all kernels, or, if it is not made of kernels
// alone (references), MLX's way.
void StepRunner::launch_graph(InFlight& step) {
  const std::vector<mx::array> outputs = step.yields();
  if (options_.join_kernels)
    step.kernels =
        ops::launch_step(model_.context(), outputs, pool_->arrays(),
                         in_flight_ && in_flight_->kernels ? &*in_flight_->kernels : nullptr,
                         step.output ? outputs.size() : (step.states ? 1 : 0));
  if (!step.kernels) {
    if (!outputs.empty()) mx::async_eval(outputs);
    // Without a sampled row only the caches are left to write. Nothing reads the saved states in
    // this step, so they are evaluated without waiting.
    if (outputs.empty() || !step.plan.saves.empty()) mx::async_eval(pool_->arrays());
    return;
  }
  pool_->reset_handles();
  if (step.output) step.logits.reset();
  step.take(step.kernels->outputs());
}

// What is read of the step, or sampled from.
std::vector<mx::array> StepRunner::InFlight::yields() const {
  std::vector<mx::array> arrays;
  if (states && !states_read) arrays.push_back(*states);
  if (output) {
    const auto sampled = output->arrays();
    arrays.insert(arrays.end(), sampled.begin(), sampled.end());
  } else if (!batch.rows.empty()) {
    arrays.push_back(*logits);
  }
  return arrays;
}

// The same arrays, launched or on the host.
void StepRunner::InFlight::take(std::span<const mx::array> arrays) {
  if (states && !states_read) {
    states = arrays[0];
    arrays = arrays.subspan(1);
  }
  if (output) output = ops::SampleOutput::from(arrays);
  if (!output && !batch.rows.empty()) logits = arrays[0];
}

void StepRunner::finish_in_flight() {
  if (!in_flight_) return;
  timer_.choose(in_flight_->kind);
  commit(*in_flight_);
  timer_.lap(ops::Phase::kCommit);
  scheduler_.recycle(std::move(in_flight_->plan));
  in_flight_.reset();
}

// Tells the scheduler how long a step took whose result is there. With lookahead it began when the
// one before it was done.
void StepRunner::observe(const InFlight& step) {
  const TimePoint now = Clock::now();
  scheduler_.observe(step.plan.load, seconds_between(std::max(step.launched, last_done_), now));
  last_done_ = now;
}

// A step that yields nothing is waited for, too, so that steps do not pile up.
void StepRunner::wait_for_output(InFlight& step) {
  const TimePoint start = Clock::now();
  const double cpu_start = thread_cpu_seconds();
  if (step.kernels) {
    step.take(step.kernels->wait());
  } else if (const std::vector<mx::array> arrays = step.yields(); arrays.empty()) {
    mx::eval(pool_->arrays().back());
  } else {
    mx::eval(arrays);
  }
  replay_time_.waited += seconds_since(start);
  replay_time_.waited_cpu += thread_cpu_seconds() - cpu_start;
}

void StepRunner::commit(InFlight& step) {
  wait_for_output(step);
  observe(step);
  timer_.lap(ops::Phase::kWait);
  timer_.step_done(step.plan.num_tokens);  // before any request hears of it
  if (step.states) collect_states(step);
  prefetch(step);
  commit_rows(step);
  keep_postponed_rows(step);
}

void StepRunner::commit_rows(InFlight& step) {
  const int32_t* tokens = step.output ? step.output->tokens.data<int32_t>() : nullptr;
  std::vector<size_t> row_of_item(step.plan.items.size(), 0);
  std::vector<int32_t> token_of_item(step.plan.items.size(), -1);  // a request that pools has none
  std::vector<size_t> without_token;  // no finite logit, or nothing that the request allows
  for (size_t r = 0; r < step.batch.rows.size(); ++r) {
    const RowInfo& row = step.batch.rows[r];
    if (!row.samples) continue;
    const bool is_postponed = std::ranges::find(step.postponed, r) != step.postponed.end();
    token_of_item[row.item] = is_postponed ? Scheduler::kPostponedToken : tokens[r];
    row_of_item[row.item] = r;
    if (tokens[r] < 0 && !is_postponed) without_token.push_back(r);
  }
  std::vector<int32_t> sampled;
  for (size_t i = 0; i < step.plan.items.size(); ++i)
    if (step.plan.items[i].samples) sampled.push_back(token_of_item[i]);
  collect_scores(step);
  for (const size_t r : without_token)
    end_without_token(step.plan.items[step.batch.rows[r].item].sequence->id, (*step.samples)[r]);
  const std::vector<CommittedToken>& committed = scheduler_.commit(step.plan, sampled);
  for (const CommittedToken& token : committed)
    if (Generation* generation = token.sequence->generation)  // else it has ended meanwhile
      commit_token(token, *generation, step, row_of_item[token.item]);
}

void StepRunner::commit_token(const CommittedToken& token, Generation& generation,
                              const InFlight& step, size_t row) {
  Sequence& sequence = *token.sequence;
  TokenEvent event;
  if (token.token >= 0) {
    event.tokens.push_back(token.token);
    ++generation_tokens_;
    ++sequence.stats.output_tokens;
    const int32_t wanted = sequence.facts.logprobs;
    if (wanted >= 0) event.logprobs.push_back(logprob_of_row(step, row, wanted));
  }
  if (!generation.told) {
    prompt_tokens_ += sequence.prompt_len;
    sequence.stats.first_token = Clock::now();
  }
  event.finish = token.finish;
  event.stop_token = token.stop_token;
  if (sequence.facts.pools) give_pooled(*generation.pooler, event);
  if (!token.finish && generation.grammar) mask_workers_.request(generation.grammar, token.token);
  tell(generation, std::move(event));
  if (token.finish) forget(sequence.id);
}

TokenLogprob StepRunner::logprob_of_row(const InFlight& step, size_t row, int32_t num_top) const {
  const ops::SampleOutput& output = *step.output;
  TokenLogprob result{.token = output.tokens.data<int32_t>()[row],
                      .logprob = output.logprobs.data<float>()[row],
                      .rank = output.ranks.data<int32_t>()[row],
                      .top = {}};
  const auto width = static_cast<size_t>(output.top_ids.shape(1));
  for (size_t i = 0; i < std::min(width, static_cast<size_t>(num_top)); ++i) {
    const int32_t id = output.top_ids.data<int32_t>()[row * width + i];
    if (id >= 0) result.top.emplace_back(id, output.top_logprobs.data<float>()[row * width + i]);
  }
  return result;
}

void StepRunner::collect_scores(const InFlight& step) {
  for (size_t r = 0; r < step.batch.rows.size(); ++r) {
    const RowInfo& row = step.batch.rows[r];
    if (row.samples) continue;
    const Sequence& sequence = *step.plan.items[row.item].sequence;
    Generation* generation = sequence.generation;
    if (!generation) continue;
    if (row.scored >= 0) {
      generation->pooler->add_score(step.output->logprobs.data<float>()[r]);
      continue;
    }
    // Position p is entry p - 1; a recomputed prompt (after preemption) says nothing new.
    if (static_cast<int64_t>(generation->prompt_logprobs.size()) != row.position - 1 ||
        generation->told)
      continue;
    generation->prompt_logprobs.push_back(
        logprob_of_row(step, r, sequence.request.sampling.prompt_logprobs));
  }
}

void StepRunner::tell(Generation& generation, TokenEvent&& event) {
  Sequence& sequence = *generation.sequence;
  if (!generation.told) event.prompt_logprobs = std::move(generation.prompt_logprobs);
  generation.told = true;
  if (event.finish) sequence.stats.finished = Clock::now();
  event.stats = sequence.stats;
  event.known = last_done_;
  if (generation.sink) generation.sink(std::move(event));
}

void StepRunner::end(RequestId id, FinishReason reason, std::string error) {
  const auto it = generations_.find(id);
  if (it == generations_.end()) return;
  scheduler_.finish(*it->second.sequence);
  TokenEvent event;
  event.finish = reason;
  event.error = std::move(error);
  tell(it->second, std::move(event));
  forget(id);
}

void StepRunner::forget(RequestId id) {
  const auto it = generations_.find(id);
  if (it->second.grammar) {
    mask_workers_.drop(it->second.grammar);
    --num_grammars_;
  }
  it->second.sequence->generation = nullptr;
  generations_.erase(it);
  std::erase_if(postponed_, [id](const PostponedRow& row) { return row.item.sequence->id == id; });
}

// A step failed: what it wrote cannot be trusted, nor what its rows would have become. Its requests
// end with the error; waiting ones go on with fresh pools, unless there was nothing else: then they
// are what failed. A device that is lost runs nothing more: then the exception escapes.
void StepRunner::recover(const std::string& reason) {
  in_flight_.reset();
  if (model_.context().device->is_lost())
    throw std::runtime_error(std::string(model_.context().device->name()) + ": " + reason);
  std::vector<RequestId> lost;
  for (const auto& [id, generation] : generations_)
    if (generation.sequence->state != Sequence::State::kWaiting ||
        generation.sequence->num_pending > 0)
      lost.push_back(id);
  if (lost.empty())
    for (const auto& [id, generation] : generations_) lost.push_back(id);
  for (const RequestId id : lost) end(id, FinishReason::kError, "a step failed: " + reason);
  scheduler_.drop_prefix_cache();
  kept_logits_.release();  // a failed graph may hold them
  make_pool();
  make_replay();
}

void StepRunner::fill(EngineStats& stats) const {
  const auto scheduler = scheduler_.stats();
  stats.running = scheduler_.num_running();
  stats.waiting = scheduler_.num_waiting();
  stats.waiting_tokens = scheduler_.num_waiting_tokens();
  stats.adapters = scheduler_.adapter_loads().all();
  stats.preemptions = scheduler.preemptions;
  stats.prefix_queries = scheduler.prefix_queries;
  stats.prefix_hits = scheduler.prefix_hits;
  stats.prefix_evictions = scheduler.prefix_evictions;
  stats.total_blocks = scheduler_.blocks().num_blocks();
  stats.used_blocks = scheduler_.blocks().num_owned();
  stats.cached_blocks = scheduler_.blocks().num_cached();
  stats.touched_blocks = scheduler_.blocks().high_water();
  const StateCheckpoints& checkpoints = scheduler_.state_checkpoints();
  stats.state_slots = scheduler_.state_slots().num_slots();
  stats.used_state_slots = scheduler_.state_slots().num_used();
  stats.state_checkpoints = checkpoints.num_slots();
  stats.used_state_checkpoints = checkpoints.num_slots() - checkpoints.num_free();
  stats.held_state_checkpoints = checkpoints.num_held();
  stats.state_saves = scheduler.state_saves;
  stats.state_restores = scheduler.state_restores;
  stats.block_size = options_.scheduler.block_size;
  stats.prefix_caching = options_.scheduler.enable_prefix_caching;
  stats.kv_cache_dtype = kv_storage_name(options_.kv_storage);
  stats.step_tokens = step_tokens_;
  stats.steps = steps_;
  stats.prompt_tokens = prompt_tokens_;
  stats.generation_tokens = generation_tokens_;
  stats.postponed_rows = postponed_rows_;
  stats.replayed_steps = replay_time_.steps;
  stats.steady_replays = replay_time_.steady;
  stats.replay_host_seconds = replay_time_.host;
  stats.replay_host_cpu_seconds = replay_time_.host_cpu;
}

}  // namespace quire::engine
