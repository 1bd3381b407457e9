// How the rows of a step are sampled: as part of it, or once the masks of grammars are there; and
// what becomes of a row that yields no token.
#include <algorithm>

#include "engine/step_runner.h"

namespace quire::engine {
namespace {

constexpr uint64_t kPadding = ~uint64_t{0};  // SampleRow::constant of rows that are none

// Whether a row's own request leaves no token to sample.
bool excludes_all(const ops::SampleRow& row, int32_t last_token) {
  if (!row.mask) return false;
  std::vector<uint32_t> allowed = *row.mask;
  const auto ban = [&allowed](int32_t id) {
    if (id >= 0 && static_cast<size_t>(id / 32) < allowed.size())
      allowed[id / 32] &= ~(uint32_t{1} << (id % 32));
  };
  for (const int32_t id : row.banned) ban(id);
  for (const auto& [before, id] : row.banned_after)
    if (before == last_token) ban(id);
  return std::ranges::all_of(allowed, [](uint32_t word) { return word == 0; });
}

}  // namespace

// Once the tokens that a grammar waits for are known.
void StepRunner::launch_late_sampler(InFlight& step) {
  wait_for_masks(step);
  if (step.states) read_states_early(step);
  add_sampler(step, std::nullopt);
  launch_sampler(step, keep_logits(step));
  timer_.lap(ops::Phase::kLaunch);
}

// Of logits that were launched before, or kept. `kept`: what is written of them, if anything is.
void StepRunner::launch_sampler(InFlight& step, const std::vector<mx::array>& kept) {
  std::vector<mx::array> outputs = step.output->arrays();
  if (options_.join_kernels)
    step.kernels =
        ops::launch_step(model_.context(), outputs, kept, step.kernels ? &*step.kernels : nullptr);
  step.logits.reset();  // they are read by then: their memory may be the next step's
  if (step.kernels) {
    step.output = ops::SampleOutput::from(step.kernels->outputs());
    return;
  }
  outputs.insert(outputs.end(), kept.begin(), kept.end());
  if (!kept.empty()) kept_logits_.set(kept.front());  // first: MLX may write what nobody else has
  mx::async_eval(outputs);
}

// Rows of a step that has ended, which may be this one's but for their positions, or new ones.
std::shared_ptr<std::vector<ops::SampleRow>> StepRunner::take_sample_rows(size_t count) {
  constexpr size_t kSteps = 3;  // one in flight, one that is made, one before
  const auto is_free = [](const auto& rows) { return rows.use_count() == 1; };
  auto rows = std::ranges::find_if(sample_rows_, is_free);
  if (rows == sample_rows_.end()) {
    if (sample_rows_.size() == kSteps) sample_rows_.erase(sample_rows_.begin());
    rows = sample_rows_.insert(sample_rows_.end(), std::make_shared<std::vector<ops::SampleRow>>());
  }
  (*rows)->resize(count);
  return *rows;
}

// How the step's rows are sampled, padding included: that is told which token to take.
ops::SampleRows StepRunner::sample_rows(InFlight& step) {
  const Batch& batch = step.batch;
  const auto rows = take_sample_rows(batch.layout ? batch.layout->rows.size() : batch.rows.size());
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const RowInfo& row = batch.rows[r];
    const Sequence& sequence = *step.plan.items[row.item].sequence;
    ops::SampleRow& there = (*rows)[r];
    if (row.samples && there.constant == sequence.id) {
      there.position = row.position;
      continue;
    }
    TokenHistory* history = nullptr;
    if (sequence.generation && needs_history(sequence.request.sampling)) {
      history = &sequence.generation->history;
      history->update(sequence.tokens, sequence.prompt_len);
    }
    there = sample_row(row, sequence, history, mask_of(step, r), options_.scheduler.eos_token_ids);
  }
  for (size_t r = batch.rows.size(); r < rows->size(); ++r)
    if ((*rows)[r].constant != kPadding) (*rows)[r] = {.constant = kPadding, .forced_token = 0};
  timer_.lap(ops::Phase::kSampling);
  return rows;
}

// Adds the sampler to the graph.
void StepRunner::add_sampler(InFlight& step, const std::optional<mx::array>& previous) {
  if (!step.samples) step.samples = sample_rows(step);
  step.output = ops::sample(model_.context(), *step.logits, step.samples, previous);
  timer_.lap(ops::Phase::kGraph);
}

void StepRunner::end_without_token(RequestId id, const ops::SampleRow& sample) {
  const auto it = generations_.find(id);
  if (it == generations_.end()) return;
  TokenMask failure = std::move(it->second.failure);
  if (failure.error.empty() && excludes_all(sample, it->second.sequence->tokens.back())) {
    failure.error =
        "no token may follow: what the request excludes leaves none of those that it allows";
    failure.client_is_to_blame = true;
  } else if (failure.error.empty()) {
    failure.error = "no token could be sampled: the logits are not finite";
  }
  FinishReason reason = FinishReason::kError;
  if (failure.client_is_to_blame) reason = FinishReason::kRefused;
  if (failure.lacks_memory) reason = FinishReason::kOverloaded;
  end(id, reason, std::move(failure.error));
}

}  // namespace quire::engine
