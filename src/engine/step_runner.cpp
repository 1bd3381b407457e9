#include "engine/step_runner.h"

#include <algorithm>

#include "base/check.h"
#include "engine/kv_storage_names.h"
#include "ops/runtime/array_memory.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/runtime/kernel_graph.h"

namespace quire::engine {

StepRunner::StepRunner(const models::Model& model, const EngineOptions& options)
    : model_(model),
      options_(options),
      scheduler_(options.scheduler),
      timer_(model.context().profile.get()) {}

void StepRunner::start() {
  mx::set_default_device(mx::Device::cpu);
  // Freed memory is kept for the next step, as that of kernels is; the sanitizer must see it go.
  mx::set_cache_limit(ops::ArrayMemory::kDefaultCacheLimit);
  make_pool();
}

void StepRunner::make_pool() {
  const SchedulerOptions& scheduler = options_.scheduler;
  pool_.emplace(
      model_.cache_specs(),
      CacheSize{.num_blocks = scheduler.num_blocks,
                .block_size = scheduler.block_size,
                .num_state_slots = scheduler.num_state_slots + scheduler.num_state_checkpoints,
                .kv_storage = options_.kv_storage},
      model_.dtype());
}

void StepRunner::stop() {
  in_flight_.reset();
  pool_.reset();
  try {
    mx::synchronize();
  } catch (const std::exception&) {
    // A failed step's error, which its requests were told.
  }
}

bool StepRunner::prepare_memory() {
  if (pool_->bytes_per_block() == 0) return false;
  const int64_t ahead = std::min({options_.ready_kv_bytes / pool_->bytes_per_block(),
                                  options_.ready_kv_tokens / options_.scheduler.block_size,
                                  scheduler_.blocks().num_blocks() / 4});
  return pool_->commit_some(scheduler_.blocks().high_water() + ahead);
}

void StepRunner::add(SequencePtr sequence) {
  const RequestId id = sequence->id;
  generations_[id].sequence = sequence;
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
    timer_.start(!in_flight_);
    StepPlan plan = scheduler_.plan();
    if (plan.empty()) {
      QUIRE_CHECK(in_flight_ || !scheduler_.has_work()) << "nothing can be scheduled";
      finish_in_flight();
      return;
    }
    InFlight next =
        launch(std::move(plan));  // reads the tokens of the step in flight on the device
    finish_in_flight();
    timer_.choose(next.kind);
    if (!next.output && !next.batch.rows.empty()) launch_late_sampler(next);
    in_flight_ = std::move(next);
    if (!options_.lookahead) finish_in_flight();
  } catch (const std::exception& error) {
    recover(error.what());
  }
  if (!has_work()) busy_.reset();
  if (options_.check_integrity) scheduler_.check_integrity();
}

// Whether a grammar's mask for this step depends on a token that is still on the device. Then the
// sampler is launched after that token was read, while the forward pass runs.
bool StepRunner::needs_known_tokens(const Batch& batch, const StepPlan& plan) const {
  return std::any_of(batch.rows.begin(), batch.rows.end(), [&](const RowInfo& row) {
    const Sequence& sequence = *plan.items[row.item].sequence;
    return row.samples && sequence.request.grammar &&
           row.position > static_cast<int64_t>(sequence.tokens.size());
  });
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
  Batch batch = build_batch(plan, options_.scheduler, model_.vocab_size());
  timer_.lap(ops::Phase::kBatch);
  const auto& ids = *batch.ids;
  std::optional<mx::array> previous;
  if (batch.feeds_pending) previous = in_flight_->output->tokens;
  const mx::array tokens =
      batch.feeds_pending ? ops::resolve_tokens(model_.context(), batch.ids, batch.from, *previous)
                          : mx::array(ids.data(), {static_cast<int>(ids.size())}, mx::int32);
  pool_->copy_states(model_.context(), plan.restores);
  mx::array logits = model_.forward(tokens, batch.layout, pool_->caches());
  pool_->copy_states(model_.context(), plan.saves);
  timer_.lap(ops::Phase::kGraph);
  InFlight step{.plan = std::move(plan),
                .batch = std::move(batch),
                .logits = std::move(logits),
                .output = {},
                .done = {},
                .resources = {},
                .kind = kind};
  if (!step.batch.rows.empty() && !needs_known_tokens(step.batch, step.plan))
    sample_rows(step, in_flight_ && in_flight_->output ? std::optional(in_flight_->output->tokens)
                                                       : std::nullopt);
  launch_graph(step);
  timer_.lap(ops::Phase::kLaunch);
  return step;
}

// Puts the step on the stream: one node that runs all kernels, or, if it is not made of kernels
// alone (references), MLX's way.
void StepRunner::launch_graph(InFlight& step) {
  std::vector<mx::array> outputs;
  if (step.output) {
    const ops::SampleOutput& o = *step.output;
    outputs = {o.tokens, o.logprobs, o.ranks, o.top_ids, o.top_logprobs};
  } else if (!step.batch.rows.empty()) {
    outputs = {*step.logits};
  }
  std::optional<ops::KernelGraph> graph;
  if (options_.join_kernels)
    graph = ops::join_kernels(model_.context(), outputs, pool_->arrays(),
                              in_flight_ ? in_flight_->done : std::nullopt);
  if (!graph) {
    if (!outputs.empty()) mx::async_eval(outputs);
    // Nothing is sampled: only what the layers keep matters. Saved states nobody waits for.
    if (outputs.empty() || !step.plan.saves.empty()) mx::async_eval(pool_->arrays());
    return;
  }
  pool_->reset_handles();
  step.logits.reset();
  if (step.output) {
    const auto& o = graph->outputs;
    step.output = {o[0], o[1], o[2], o[3], o[4]};
  } else if (!outputs.empty()) {
    step.logits = graph->outputs[0];
  }
  step.done = graph->done;
  step.resources = std::move(graph->resources);
  mx::async_eval(graph->done);
}

// Once the tokens that a grammar waits for are known.
void StepRunner::launch_late_sampler(InFlight& step) {
  sample_rows(step, std::nullopt);
  const ops::SampleOutput& o = *step.output;
  mx::async_eval(o.tokens, o.logprobs, o.ranks, o.top_ids, o.top_logprobs);
  timer_.lap(ops::Phase::kLaunch);
}

// Adds the sampler to the graph.
void StepRunner::sample_rows(InFlight& step, const std::optional<mx::array>& previous) {
  auto rows = std::make_shared<std::vector<ops::SampleRow>>();
  rows->reserve(step.batch.rows.size());
  for (const RowInfo& row : step.batch.rows) {
    const Sequence& sequence = *step.plan.items[row.item].sequence;
    const auto it = generations_.find(sequence.id);
    TokenHistory* history = nullptr;
    if (it != generations_.end() && needs_history(sequence.request.sampling)) {
      history = &it->second.history;
      history->update(sequence.tokens, sequence.prompt_len);
    }
    std::shared_ptr<std::vector<uint32_t>> mask;
    if (row.samples && sequence.request.grammar && sequence.state != Sequence::State::kFinished) {
      mask = std::make_shared<std::vector<uint32_t>>((model_.vocab_size() + 31) / 32);
      if (const auto filled = sequence.request.grammar->fill_mask(*mask); !filled) {
        std::fill(mask->begin(), mask->end(), 0);  // nothing is allowed: the row yields no token
        it->second.failure = "the grammar: " + filled.error();
      }
    }
    rows->push_back(
        sample_row(row, sequence, history, std::move(mask), options_.scheduler.eos_token_ids));
  }
  timer_.lap(ops::Phase::kSampling);
  step.output = ops::sample(model_.context(), *step.logits, std::move(rows), previous);
  timer_.lap(ops::Phase::kGraph);
}

void StepRunner::finish_in_flight() {
  if (!in_flight_) return;
  timer_.choose(in_flight_->kind);
  commit(*in_flight_);
  timer_.lap(ops::Phase::kCommit);
  scheduler_.recycle(std::move(in_flight_->plan));
  in_flight_.reset();
}

void StepRunner::commit(InFlight& step) {
  if (!step.output) {  // a step without sampled rows: wait, so that steps do not pile up
    mx::eval(step.done ? *step.done : pool_->arrays().back());
    timer_.lap(ops::Phase::kWait);
    timer_.step_done(step.plan.num_tokens);
    scheduler_.commit(step.plan, {});
    return;
  }
  mx::eval(step.output->tokens, step.output->logprobs, step.output->ranks, step.output->top_ids,
           step.output->top_logprobs);
  timer_.lap(ops::Phase::kWait);
  timer_.step_done(step.plan.num_tokens);  // before any request hears of it
  const int32_t* tokens = step.output->tokens.data<int32_t>();
  std::vector<int32_t> sampled;
  std::vector<size_t> row_of_item(step.plan.items.size(), 0);
  std::vector<RequestId> without_token;  // no finite logit, or nothing that the grammar allows
  for (size_t r = 0; r < step.batch.rows.size(); ++r) {
    const RowInfo& row = step.batch.rows[r];
    if (!row.samples) continue;
    sampled.push_back(tokens[r]);
    row_of_item[row.item] = r;
    if (tokens[r] < 0) without_token.push_back(step.plan.items[row.item].sequence->id);
  }
  collect_prompt_logprobs(step);
  for (const RequestId id : without_token) end_without_token(id);
  for (const CommittedToken& token : scheduler_.commit(step.plan, sampled))
    commit_token(token, step, row_of_item[token.item]);
}

void StepRunner::commit_token(const CommittedToken& token, const InFlight& step, size_t row) {
  Sequence& sequence = *token.sequence;
  const auto it = generations_.find(sequence.id);
  if (it == generations_.end()) return;
  TokenEvent event;
  if (token.token >= 0) {
    event.tokens.push_back(token.token);
    ++generation_tokens_;
    ++sequence.stats.output_tokens;
    const int32_t wanted = sequence.request.sampling.logprobs;
    if (wanted >= 0) event.logprobs.push_back(logprob_of_row(step, row, wanted));
  }
  if (!it->second.told) {
    prompt_tokens_ += sequence.prompt_len;
    sequence.stats.first_token = Clock::now();
  }
  event.finish = token.finish;
  event.stop_token = token.stop_token;
  if (!token.finish && sequence.request.grammar) {
    const auto accepted = sequence.request.grammar->accept(token.token);
    if (!accepted || !*accepted) {
      end(sequence.id, FinishReason::kError,
          "the grammar refused a token: " + (accepted ? "not allowed here" : accepted.error()));
      return;
    }
  }
  tell(it->second, std::move(event));
  if (token.finish) generations_.erase(sequence.id);
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

void StepRunner::collect_prompt_logprobs(const InFlight& step) {
  for (size_t r = 0; r < step.batch.rows.size(); ++r) {
    const RowInfo& row = step.batch.rows[r];
    if (row.samples) continue;
    const Sequence& sequence = *step.plan.items[row.item].sequence;
    const auto it = generations_.find(sequence.id);
    if (it == generations_.end()) continue;
    // Position p is entry p - 1; a recomputed prompt (after preemption) says nothing new.
    if (static_cast<int64_t>(it->second.prompt_logprobs.size()) != row.position - 1 ||
        it->second.told)
      continue;
    it->second.prompt_logprobs.push_back(
        logprob_of_row(step, r, sequence.request.sampling.prompt_logprobs));
  }
}

void StepRunner::tell(Generation& generation, TokenEvent event) {
  Sequence& sequence = *generation.sequence;
  if (!generation.told) event.prompt_logprobs = std::move(generation.prompt_logprobs);
  generation.told = true;
  if (event.finish) sequence.stats.finished = Clock::now();
  event.stats = sequence.stats;
  if (sequence.request.sink) sequence.request.sink(std::move(event));
}

void StepRunner::end(RequestId id, FinishReason reason, std::string error) {
  const auto it = generations_.find(id);
  if (it == generations_.end()) return;
  scheduler_.finish(*it->second.sequence);
  TokenEvent event;
  event.finish = reason;
  event.error = std::move(error);
  tell(it->second, std::move(event));
  generations_.erase(it);
}

void StepRunner::end_without_token(RequestId id) {
  const auto it = generations_.find(id);
  if (it == generations_.end()) return;
  std::string why =
      it->second.failure.empty()
          ? "no token could be sampled: the logits are not finite, or every token was excluded"
          : std::move(it->second.failure);
  end(id, FinishReason::kError, std::move(why));
}

// A step failed: what it wrote cannot be trusted, nor what its rows would have become. Its requests
// end with the error; waiting ones go on with fresh pools.
void StepRunner::recover(const std::string& reason) {
  in_flight_.reset();
  std::vector<RequestId> lost;
  for (const auto& [id, generation] : generations_)
    if (generation.sequence->state != Sequence::State::kWaiting ||
        generation.sequence->num_pending > 0)
      lost.push_back(id);
  for (const RequestId id : lost) end(id, FinishReason::kError, "a step failed: " + reason);
  scheduler_.drop_prefix_cache();
  make_pool();
}

void StepRunner::fill(EngineStats& stats) const {
  const auto scheduler = scheduler_.stats();
  stats.running = scheduler_.num_running();
  stats.waiting = scheduler_.num_waiting();
  stats.preemptions = scheduler.preemptions;
  stats.prefix_queries = scheduler.prefix_queries;
  stats.prefix_hits = scheduler.prefix_hits;
  stats.total_blocks = scheduler_.blocks().num_blocks();
  stats.used_blocks = scheduler_.blocks().num_owned();
  stats.cached_blocks = scheduler_.blocks().num_cached();
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
}

}  // namespace quire::engine
