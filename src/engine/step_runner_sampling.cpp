// How the rows of a step are sampled: as part of it, or once the masks of grammars are there.
#include "engine/step_runner.h"

namespace quire::engine {

// Once the tokens that a grammar waits for are known.
void StepRunner::launch_late_sampler(InFlight& step) {
  wait_for_masks(step);
  if (step.states) read_states_early(step);
  add_sampler(step, std::nullopt);
  launch_sampler(step);
  // The next step may write over them.
  if (!step.postponed.empty())
    step.postponed_logits = model_.context().device->copy_to_host({*step.logits});
  timer_.lap(ops::Phase::kLaunch);
}

// Of logits that were launched before, or come from the host.
void StepRunner::launch_sampler(InFlight& step) {
  const std::vector<mx::array> outputs = step.output->arrays();
  if (options_.join_kernels)
    step.kernels =
        ops::launch_step(model_.context(), outputs, {}, step.kernels ? &*step.kernels : nullptr);
  if (step.kernels) {
    step.output = ops::SampleOutput::from(step.kernels->outputs());
  } else {
    mx::async_eval(outputs);
  }
}

// How the step's rows are sampled, padding included: that is told which token to take.
ops::SampleRows StepRunner::sample_rows(InFlight& step) {
  const Batch& batch = step.batch;
  auto rows = std::make_shared<std::vector<ops::SampleRow>>();
  rows->reserve(batch.layout ? batch.layout->rows.size() : batch.rows.size());
  for (size_t r = 0; r < batch.rows.size(); ++r) {
    const RowInfo& row = batch.rows[r];
    const Sequence& sequence = *step.plan.items[row.item].sequence;
    const auto it = generations_.find(sequence.id);
    TokenHistory* history = nullptr;
    if (it != generations_.end() && needs_history(sequence.request.sampling)) {
      history = &it->second.history;
      history->update(sequence.tokens, sequence.prompt_len);
    }
    rows->push_back(
        sample_row(row, sequence, history, mask_of(step, r), options_.scheduler.eos_token_ids));
  }
  if (batch.layout) rows->resize(batch.layout->rows.size(), ops::SampleRow{.forced_token = 0});
  timer_.lap(ops::Phase::kSampling);
  return rows;
}

// Adds the sampler to the graph.
void StepRunner::add_sampler(InFlight& step, const std::optional<mx::array>& previous) {
  if (!step.samples) step.samples = sample_rows(step);
  step.output = ops::sample(model_.context(), *step.logits, step.samples, previous);
  timer_.lap(ops::Phase::kGraph);
}

}  // namespace quire::engine
