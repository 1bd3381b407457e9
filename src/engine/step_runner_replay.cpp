// Decode steps that a device has recorded, and the host's part of them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "engine/memory_budget.h"
#include "engine/step_runner.h"

namespace quire::engine {
namespace {

void prefetch_lines(const void* begin, const void* end) {
  constexpr uintptr_t kCacheLine = 64;
  const auto first = reinterpret_cast<uintptr_t>(begin), last = reinterpret_cast<uintptr_t>(end);
  for (uintptr_t line = first / kCacheLine * kCacheLine; line < last; line += kCacheLine)
    __builtin_prefetch(reinterpret_cast<const void*>(line));
}

}  // namespace

void StepRunner::make_replay() {
  const ops::Context& context = model_.context();
  // A profile wants to see every kernel.
  if (!options_.replay_decodes || !context.device->records_steps() || context.profile) return;
  replay_.emplace(model_, *pool_, options_.scheduler);
}

// The largest step: as many tokens as there may be, all of them padding, as many rows, and tables
// as long as there are blocks, or where these are given back, as long as sequences may be.
void StepRunner::plan_memory() {
  const ops::Context& context = model_.context();
  if (context.device->host_memory()) return;
  const SchedulerOptions& scheduler = options_.scheduler;
  const int64_t tokens = scheduler.max_num_batched_tokens;
  const auto layout = std::make_shared<ops::BatchLayout>(
      *padding_layout(tokens, scheduler.max_model_len, most_rows(scheduler), scheduler));
  const int64_t longest_tables =
      scheduler.max_num_seqs * scheduler_.demand().blocks_for(scheduler.max_model_len);
  layout->blocks.resize(static_cast<size_t>(
      scheduler_.demand().gives_back() ? longest_tables : scheduler.num_blocks));
  const std::vector<int32_t> ids(static_cast<size_t>(tokens));
  const auto rows = std::make_shared<std::vector<ops::SampleRow>>(
      layout->rows.size(), ops::SampleRow{.forced_token = 0});
  kept_logits_.allocate(*context.device);
  context.device->plan_memory([&] {
    const mx::array on_device =
        context.device->make_array(ids.data(), {static_cast<int>(tokens)}, mx::int32);
    const mx::array logits = model_.forward(on_device, layout, pool_->caches()).logits;
    const auto output = ops::sample(context, logits, rows, std::nullopt).arrays();
    auto step = ops::launch_step(context, output, pool_->arrays());
    pool_->reset_handles();
    if (step)
      step->wait();
    else
      mx::eval(output);
  });
  if (context.profile) context.profile->take();
}

// Runs a recorded step, which samples unless a mask is missing. False: none has room for it, and it
// is to be launched kernel by kernel.
bool StepRunner::replay(InFlight& step, const std::optional<mx::array>& previous) {
  if (!masks_are_missing(step)) step.samples = sample_rows(step);
  step.kernels = replay_->launch(step.batch, step.samples, previous);
  if (!step.kernels) return false;
  step.is_replay = true;
  if (step.samples)
    step.output = ops::SampleOutput::from(step.kernels->outputs());
  else
    step.logits = step.kernels->outputs()[0];
  return true;
}

// Asks the caches for what telling the step's tokens and planning the next step read of each row.
// After a step that took milliseconds it is in none, and one after another these misses are most
// of a host's step. What is found in sequences comes second, and what is found there third.
void StepRunner::prefetch(const InFlight& step) {
  constexpr size_t kFewRows = 16;  // are no trouble
  constexpr size_t kOwners = 16;   // make_shared counts them in front of the object
  if (step.plan.items.size() < kFewRows) return;
  // Of both structs, the members that every step reads stand in front of the named one.
  for (const StepItem& item : step.plan.items)
    prefetch_lines(reinterpret_cast<const std::byte*>(item.sequence.get()) - kOwners,
                   &item.sequence->checkpoints);
  for (const StepItem& item : step.plan.items) {
    const Sequence& sequence = *item.sequence;
    if (sequence.generation) prefetch_lines(sequence.generation, &sequence.generation->history);
    const int32_t* next_token = sequence.tokens.data() + sequence.tokens.size();
    prefetch_lines(next_token, next_token + 1);
    prefetch_lines(sequence.tables.data(), sequence.tables.data() + sequence.tables.size());
  }
  for (const StepItem& item : step.plan.items)
    for (const BlockTable& table : item.sequence->tables)
      if (!table.blocks.empty()) prefetch_lines(&table.blocks.back(), &table.blocks.back() + 1);
}

void StepRunner::count_replay(double seconds, double cpu_seconds) {
  const bool is_replay = in_flight_ && in_flight_->is_replay;
  replay_time_.steps += is_replay;
  const bool follows = std::exchange(replay_time_.was_last, is_replay);
  if (!follows || !is_replay || in_flight_->batch.reads_prompts) return;
  ++replay_time_.steady;
  replay_time_.host += seconds;
  replay_time_.host_cpu += cpu_seconds;
}

}  // namespace quire::engine
