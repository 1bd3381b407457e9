// Grammar masks: rows that wait for theirs, and rows that sit out.
#include <algorithm>

#include "base/check.h"
#include "engine/step_runner.h"

namespace quire::engine {
namespace {

// How long a step whose forward pass is done waits for masks. Most take a tenth of a millisecond; a
// row that sits out loses two steps.
constexpr std::chrono::microseconds kPatience(2000);
// How often the forward pass is looked at meanwhile.
constexpr std::chrono::microseconds kLook(200);
// With nothing else to do. New requests and aborts wait for as long.
constexpr std::chrono::microseconds kIdleWait(1000);

}  // namespace

// The grammars of the rows that sample.
std::vector<MaskWorkers::RowPtr> StepRunner::grammars_of(const InFlight& step) const {
  std::vector<MaskWorkers::RowPtr> grammars;
  if (num_grammars_ == 0) return grammars;
  for (const RowInfo& row : step.batch.rows) {
    if (!row.samples) continue;
    const Generation* generation = step.plan.items[row.item].sequence->generation;
    if (generation && generation->grammar) grammars.push_back(generation->grammar);
  }
  return grammars;
}

bool StepRunner::masks_are_missing(const InFlight& step) const {
  const auto grammars = grammars_of(step);
  return std::ranges::any_of(
      grammars, [this](const MaskWorkers::RowPtr& row) { return !mask_workers_.is_ready(row); });
}

// Later ones are asked for when the token before them is known.
void StepRunner::request_first_masks(const InFlight& step) {
  if (num_grammars_ == 0) return;
  for (const RowInfo& row : step.batch.rows) {
    const Sequence& sequence = *step.plan.items[row.item].sequence;
    if (!row.samples || row.position != sequence.prompt_len || !sequence.generation) continue;
    const MaskWorkers::RowPtr& grammar = sequence.generation->grammar;
    if (grammar && !mask_workers_.is_wanted(grammar)) mask_workers_.request(grammar, std::nullopt);
  }
}

// Until the masks are there, or the other rows would wait for them.
void StepRunner::wait_for_masks(const InFlight& step) {
  const auto grammars = grammars_of(step);
  while (!mask_workers_.wait(grammars, grammars.size(), kLook)) {
    if (!(step.kernels ? step.kernels->has_run() : step.logits->is_available())) continue;
    mask_workers_.wait(grammars, grammars.size(), kPatience);
    return;
  }
}

// The mask of a row, null if it has none. Without it, and where there is none to come, nothing is
// allowed: the row yields no token.
std::shared_ptr<const std::vector<uint32_t>> StepRunner::mask_of(InFlight& step, size_t row) {
  if (num_grammars_ == 0) return nullptr;
  const RowInfo& info = step.batch.rows[row];
  Generation* generation = step.plan.items[info.item].sequence->generation;
  if (!info.samples || !generation || !generation->grammar) return nullptr;
  QUIRE_CHECK(mask_workers_.is_wanted(generation->grammar)) << "nobody has asked for the mask";
  if (mask_workers_.is_ready(generation->grammar)) {
    generation->failure = mask_workers_.take(generation->grammar);
    if (generation->failure.words) return std::move(generation->failure.words);
  } else {
    step.postponed.push_back(row);
    ++postponed_rows_;
    generation->sequence->postponed = true;
  }
  return std::make_shared<const std::vector<uint32_t>>((model_.vocab_size() + 31) / 32);
}

// Copies the logits of what is postponed, while the step's are there: the next step may write over
// them. What is to be launched for it, if anything is.
std::vector<mx::array> StepRunner::keep_logits(InFlight& step) {
  if (step.postponed.empty()) return {};
  while (step.kept.size() < step.postponed.size()) step.kept.push_back(kept_logits_.take_place());
  return {kept_logits_.put(model_.context(), *step.logits, step.postponed, step.kept)};
}

// A sequence that has ended or been preempted since needs its logits no more.
void StepRunner::keep_postponed_rows(InFlight& step) {
  for (size_t i = 0; i < step.postponed.size(); ++i) {
    const RowInfo& row = step.batch.rows[step.postponed[i]];
    const StepItem& item = step.plan.items[row.item];
    if (!item.sequence->generation || !item.sequence->postponed) continue;
    postponed_.push_back({.item = item, .row = row, .logits = std::move(step.kept[i])});
  }
}

// Samples the postponed rows whose masks have come: as a step of its own, without a forward pass.
std::optional<StepRunner::InFlight> StepRunner::launch_postponed_rows() {
  const auto is_over = [](const PostponedRow& row) { return !row.item.sequence->postponed; };
  std::erase_if(postponed_, is_over);
  InFlight step;
  std::vector<int32_t> places;
  for (const PostponedRow& row : postponed_) {
    if (!mask_workers_.is_ready(generations_.at(row.item.sequence->id).grammar)) continue;
    row.item.sequence->postponed = false;
    step.batch.rows.push_back(row.row);
    step.batch.rows.back().item = step.plan.items.size();
    step.plan.items.push_back(row.item);
    places.push_back(row.logits.index());
  }
  if (step.plan.items.empty()) return std::nullopt;
  step.logits = kept_logits_.get(model_.context(), places);
  add_sampler(step, std::nullopt);
  launch_sampler(step, {});
  std::erase_if(postponed_, is_over);  // who has their places next writes them after this
  return step;
}

// When every sequence waits for a mask.
void StepRunner::wait_for_postponed_rows() {
  std::vector<MaskWorkers::RowPtr> grammars;
  for (const PostponedRow& row : postponed_)
    if (row.item.sequence->postponed)
      grammars.push_back(generations_.at(row.item.sequence->id).grammar);
  if (grammars.empty()) return;
  mask_workers_.wait(grammars, 1, kIdleWait);
  if (auto step = launch_postponed_rows()) commit_postponed(*step);
}

void StepRunner::commit_postponed(InFlight& step) {
  wait_for_output(step);
  commit_rows(step);
}

}  // namespace quire::engine
