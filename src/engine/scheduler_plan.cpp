#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/scheduler.h"

namespace quire::engine {

StepPlan Scheduler::plan() {
  StepPlan plan;
  if (!spare_plans_.empty()) {
    plan = std::move(spare_plans_.back());
    spare_plans_.pop_back();
  }
  committed_.clear();
  ++num_plans_;
  checkpoints_.begin_plan();
  if (demand_.gives_back())
    for (const SequencePtr& sequence : running_) give_back_unseen(*sequence);
  plan.items.reserve(options_.max_num_seqs);
  plan.saves.reserve(checkpoints_.num_slots() > 0 ? options_.max_num_seqs : 0);

  share_rows();
  plan_decodes(plan);
  plan_prompts(plan);
  // The rows whose turn it is may lack blocks, which the first in order would get had it not been
  // put off.
  if (plan.items.empty() && chunks_.empty() && has_work()) {
    ++num_plans_;  // so that nobody counts as put off, settled or closed
    plan_decodes(plan);
    plan_prompts(plan);
  }

  for (const size_t pass : {0, 1})  // chunks of one token stand among the decode rows
    for (StepItem& chunk : chunks_)
      if ((chunk.num_tokens == 1) == (pass == 0)) plan.items.push_back(std::move(chunk));
  chunks_.clear();
  plan_saves(plan);
  // Only now: what this plan computes must not be shared by it, and what it took back never.
  for (const StepItem& item : plan.items) register_full_blocks(*item.sequence);
  const StepItem* row_before = nullptr;
  for (const StepItem& item : plan.items) {
    if (item.num_tokens > 1) {
      plan.load.add_chunk(item.start, item.num_tokens);
      continue;
    }
    plan.load.add_row(item.start);
    const uint64_t tenant = item.sequence->facts.tenant;
    if (!row_before || row_before->sequence->facts.tenant != tenant) decoded_at_[tenant] = seconds_;
    row_before = &item;
  }
  if (plan.load.decode_rows > 0) mixed_plans_ = plan.load.prompt_tokens > 0 ? mixed_plans_ + 1 : 0;
  return plan;
}

void Scheduler::observe(const StepLoad& load, double seconds) {
  constexpr double kLately = 1;
  cost_.observe(load, seconds);
  seconds_ += seconds;
  std::erase_if(decoded_at_, [&](const auto& entry) { return entry.second < seconds_ - kLately; });
}

void Scheduler::recycle(StepPlan&& plan) {
  committed_.clear();
  plan.items.clear();
  plan.restores.clear();
  plan.saves.clear();
  plan.num_tokens = 0;
  plan.load = {};
  if (spare_plans_.size() < 2) spare_plans_.push_back(std::move(plan));
}

// Gets the blocks for `num_tokens` more tokens of a running sequence, in each of its tables, at the
// cost of those that pick_victim names. Returns how many tokens fit: fewer, or none, only if there
// is no victim; then it keeps its blocks and goes on when others have finished.
int64_t Scheduler::reserve(Sequence& sequence, int64_t num_tokens, StepPlan& plan) {
  const int64_t length = sequence.table_len();
  const auto tables = static_cast<int64_t>(sequence.tables.size());
  int64_t needed = blocks_.blocks_for(sequence.kv_len + num_tokens) - length;
  if (needed <= 0) return num_tokens;
  while (needed * tables > blocks_.num_available()) {
    const std::optional<size_t> victim = pick_victim(sequence);
    if (!victim) break;
    preempt(*victim, plan);
  }
  if (needed * tables > blocks_.num_available()) {
    needed = blocks_.num_available() / tables;
    num_tokens = (length + needed) * options_.block_size - sequence.kv_len;
  }
  if (needed > 0)
    for (BlockTable& table : sequence.tables) blocks_.allocate(needed, table.blocks);
  return num_tokens;
}

void Scheduler::add_tokens(StepItem& item, int64_t num_tokens, StepPlan& plan) {
  Sequence& sequence = *item.sequence;
  item.num_tokens += num_tokens;
  sequence.kv_len += num_tokens;
  item.samples = sequence.kv_len == sequence.target_len();
  item.feeds_pending = sequence.kv_len > static_cast<int64_t>(sequence.tokens.size());
  sequence.num_pending += item.samples;
  plan.num_tokens += num_tokens;
}

// Undoes add_tokens, if the sequence has an item in this plan; its kv_len is reset by the caller.
void Scheduler::remove_item(StepPlan& plan, const Sequence& sequence) {
  for (std::vector<StepItem>* items : {&plan.items, &chunks_}) {
    const auto item = std::find_if(items->begin(), items->end(), [&](const StepItem& other) {
      return other.sequence.get() == &sequence;
    });
    if (item == items->end()) continue;
    plan.num_tokens -= item->num_tokens;
    item->sequence->num_pending -= item->samples;
    items->erase(item);
  }
}

}  // namespace quire::engine
