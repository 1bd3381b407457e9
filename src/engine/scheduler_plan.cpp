#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/scheduler.h"

namespace quire::engine {
namespace {

// A waiting sequence that did not fit is looked up again only when enough blocks have become
// available, or after this many plans (its prefix may have been cached by then): the look-up of a
// long prompt costs more than the rest of a plan.
constexpr uint64_t kPlansBetweenLooks = 16;

}  // namespace

// -- plan ----------------------------------------------------------------------------------------

StepPlan Scheduler::plan() {
  StepPlan plan;
  if (!spare_plans_.empty()) {
    plan = std::move(spare_plans_.back());
    spare_plans_.pop_back();
  }
  committed_.clear();
  short_of_blocks_ = false;
  ++num_plans_;
  checkpoints_.begin_plan();
  plan.items.reserve(options_.max_num_seqs);
  plan.saves.reserve(checkpoints_.num_slots() > 0 ? options_.max_num_seqs : 0);

  plan_decodes(plan);
  plan_prefills(plan);
  if (!short_of_blocks_) admit_waiting(plan);

  for (StepItem& chunk : chunks_) plan.items.push_back(std::move(chunk));
  chunks_.clear();
  plan_saves(plan);
  // Only now: what this plan computes must not be shared by it, and what it took back never.
  for (const StepItem& item : plan.items) register_full_blocks(*item.sequence);
  return plan;
}

void Scheduler::recycle(StepPlan&& plan) {
  committed_.clear();
  plan.items.clear();
  plan.restores.clear();
  plan.saves.clear();
  plan.num_tokens = 0;
  if (spare_plans_.size() < 2) spare_plans_.push_back(std::move(plan));
}

void Scheduler::plan_decodes(StepPlan& plan) {
  for (size_t i = 0; i < running_.size(); ++i) {
    const Sequence& sequence = *running_[i];
    if (sequence.target_len() - sequence.kv_len != 1) continue;
    if (sequence.ends_with_pending(options_.max_model_len)) continue;
    if (plan.num_tokens == options_.max_num_batched_tokens) return;
    if (reserve(i, 1, plan) == 1) add_item(plan, running_[i], 1);
  }
}

// A sequence that got a decode row has one token to go again: it is not met here.
void Scheduler::plan_prefills(StepPlan& plan) {
  for (size_t i = 0; i < running_.size(); ++i) {
    const int64_t left = running_[i]->target_len() - running_[i]->kv_len;
    if (left <= 1) continue;
    const int64_t budget = options_.max_num_batched_tokens - plan.num_tokens;
    if (budget == 0) return;
    const int64_t wanted = cut_chunk(*running_[i], std::min(left, budget));
    const int64_t num_tokens = reserve(i, wanted, plan);
    if (num_tokens > 0) add_item(plan, running_[i], num_tokens);
  }
}

// Gets the blocks for `num_tokens` more tokens of running_[index], at the cost of those after it.
// Returns how many tokens fit: fewer, or none, only if it is the last, which keeps its blocks and
// goes on when others have finished.
int64_t Scheduler::reserve(size_t index, int64_t num_tokens, StepPlan& plan) {
  Sequence& sequence = *running_[index];
  const auto held = static_cast<int64_t>(sequence.blocks.size());
  int64_t needed = blocks_.blocks_for(sequence.kv_len + num_tokens) - held;
  if (needed <= 0) return num_tokens;
  while (needed > blocks_.num_available() && index + 1 < running_.size()) preempt_last(plan);
  if (needed > blocks_.num_available()) {
    short_of_blocks_ = true;
    needed = blocks_.num_available();
    num_tokens = (held + needed) * options_.block_size - sequence.kv_len;
  }
  if (needed > 0) blocks_.allocate(needed, sequence.blocks);
  return num_tokens;
}

void Scheduler::add_item(StepPlan& plan, const SequencePtr& sequence, int64_t num_tokens) {
  const int64_t end = sequence->kv_len + num_tokens;
  StepItem item{.sequence = sequence,
                .start = sequence->kv_len,
                .num_tokens = num_tokens,
                .samples = end == sequence->target_len(),
                .feeds_pending = end > static_cast<int64_t>(sequence->tokens.size())};
  sequence->kv_len = end;
  sequence->num_pending += item.samples;
  plan.num_tokens += num_tokens;
  (num_tokens == 1 ? plan.items : chunks_).push_back(std::move(item));
}

// Undoes add_item, if the sequence has one in this plan; its kv_len is reset by the caller.
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

// -- admission -----------------------------------------------------------------------------------

void Scheduler::admit_waiting(StepPlan& plan) {
  const auto has_room = [&] {
    return !waiting_.empty() && num_running() < options_.max_num_seqs &&
           (!has_state() || state_slots_.num_free() > 0) &&
           plan.num_tokens < options_.max_num_batched_tokens;
  };
  if (!has_room()) return;
  int64_t growth = 0;
  for (const SequencePtr& sequence : running_) growth += growth_of(*sequence);
  while (has_room() && admit_front(plan, growth)) {
  }
}

// Blocks that a running sequence will soon want: for the tokens it has, and one to go on with,
// unless it ends before. They are left to it, or else a newcomer would be thrown out again at once.
int64_t Scheduler::growth_of(const Sequence& sequence) const {
  const int64_t soon = blocks_.blocks_for(sequence.target_len()) + 1;
  const int64_t ever = blocks_.blocks_for(sequence.longest_len(options_.max_model_len));
  return std::max<int64_t>(0, std::min(soon, ever) - static_cast<int64_t>(sequence.blocks.size()));
}

bool Scheduler::admit_front(StepPlan& plan, int64_t& growth) {
  SequencePtr sequence = waiting_.front();
  // Preempted with a token in flight: its value is needed to compute the sequence again.
  if (sequence->num_pending > 0 || !worth_a_look(*sequence)) return false;
  const Admission admission = look_up(*sequence);
  if (admission.uses_cache && prefix_is_coming(*sequence, admission)) return false;
  if (!running_.empty() && admission.blocks_wanted + growth > blocks_.num_available()) {
    refused_arrival_ = sequence->arrival;
    refused_wanted_ = admission.blocks_wanted + growth;
    return false;
  }
  waiting_.pop_front();
  start(*sequence, admission, plan);
  const int64_t budget = options_.max_num_batched_tokens - plan.num_tokens;
  const int64_t num_tokens =
      cut_chunk(*sequence, std::min(sequence->target_len() - sequence->kv_len, budget));
  const int64_t needed = blocks_.blocks_for(sequence->kv_len + num_tokens) -
                         static_cast<int64_t>(sequence->blocks.size());
  const bool fits = needed <= 0 || blocks_.allocate(needed, sequence->blocks);
  QUIRE_CHECK(fits) << needed << " blocks";
  add_item(plan, sequence, num_tokens);
  growth += growth_of(*sequence);
  start_running(std::move(sequence));
  return true;
}

bool Scheduler::worth_a_look(const Sequence& sequence) const {
  return running_.empty() || sequence.arrival != refused_arrival_ ||
         blocks_.num_available() >= refused_wanted_ || num_plans_ % kPlansBetweenLooks == 0;
}

// Finds the cached prefix (into hits_) and what else the sequence needs for all its tokens.
Scheduler::Admission Scheduler::look_up(const Sequence& sequence) {
  Admission admission;
  hits_.clear();
  // Every prompt position has to be projected if its logprobs are asked for.
  admission.uses_cache = options_.enable_prefix_caching &&
                         (!has_state() || checkpoints_.num_slots() > 0) &&
                         sequence.request.sampling.prompt_logprobs < 0;
  if (admission.uses_cache) {
    admission.node = cache_.lookup(sequence.request.cache_salt, sequence.tokens, hits_);
  }
  const auto num_hits = static_cast<int64_t>(hits_.size());
  const auto length = static_cast<int64_t>(sequence.tokens.size());
  // The last token is computed in any case, for its logits.
  admission.kv_len =
      has_state() ? restorable(length) : std::min(num_hits * options_.block_size, length - 1);
  const auto unowned = std::count_if(hits_.begin(), hits_.end(),
                                     [&](int32_t block) { return blocks_.ref_count(block) == 0; });
  admission.blocks_wanted = blocks_.blocks_for(length) - num_hits + unowned;
  return admission;
}

// Whether another sequence of this plan computes most of what this one would, like the other
// completions of one prompt: then it is cheaper to start a step later, on shared blocks. Who is
// waited for has tokens in this plan and so gets on.
bool Scheduler::prefix_is_coming(const Sequence& sequence, const Admission& admission) const {
  const auto length = static_cast<int64_t>(sequence.tokens.size());
  const int64_t cached =
      has_state() ? admission.kv_len : static_cast<int64_t>(hits_.size()) * options_.block_size;
  return std::any_of(chunks_.begin(), chunks_.end(), [&](const StepItem& chunk) {
    const Sequence& other = *chunk.sequence;
    if (other.request.cache_salt != sequence.request.cache_salt) return false;
    const auto [end, ignored] = std::mismatch(sequence.tokens.begin(), sequence.tokens.end(),
                                              other.tokens.begin(), other.tokens.end());
    const int64_t common = end - sequence.tokens.begin();
    const int64_t reusable = has_state() ? coming_checkpoint(chunk, std::min(common, length - 1))
                                         : common / options_.block_size * options_.block_size;
    const int64_t gain = reusable - cached;
    return gain > 0 && 2 * gain >= length - cached;
  });
}

// Gives a waiting sequence its cached prefix. When that covers all its tokens, kv_len stops one
// short of shared_len: the last token is fed again but not written again, so the block stays as
// it is and need not be copied. With recurrent state kv_len is where the last checkpoint is.
void Scheduler::start(Sequence& sequence, const Admission& admission, StepPlan& plan) {
  for (const int32_t block : hits_) blocks_.retain(block);
  sequence.blocks.assign(hits_.begin(), hits_.end());
  sequence.kv_len = admission.kv_len;
  sequence.registered_blocks = static_cast<int64_t>(hits_.size());
  sequence.shared_len = sequence.registered_blocks * options_.block_size;
  sequence.cache_node = admission.node;
  if (has_state()) start_state(sequence, plan);
  if (admission.uses_cache) {
    stats_.prefix_queries += static_cast<int64_t>(sequence.tokens.size());
    stats_.prefix_hits += admission.kv_len;
  }
  if (sequence.stats.scheduled != TimePoint{}) return;  // resumed after a preemption
  sequence.stats.scheduled = Clock::now();
  sequence.stats.cached_tokens = admission.kv_len;
  const int64_t longest = sequence.longest_len(options_.max_model_len);
  sequence.tokens.reserve(longest + 1);
  sequence.blocks.reserve(blocks_.blocks_for(longest));
}

}  // namespace quire::engine
