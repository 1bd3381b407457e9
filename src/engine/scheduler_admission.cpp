// Which waiting requests start, and what they start with.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/scheduler.h"

namespace quire::engine {
namespace {

// A waiting sequence that did not fit is looked up again only when enough blocks have become
// available, or after this many plans (its prefix may have been cached by then): the look-up of a
// long prompt costs more than the rest of a plan.
constexpr uint64_t kPlansBetweenLooks = 4;

}  // namespace

int64_t Scheduler::num_slots() const {
  return has_state() ? std::min(options_.max_num_seqs, options_.num_state_slots)
                     : options_.max_num_seqs;
}

// Starts a waiting request if there is a place for it; it has no tokens in the plan yet.
bool Scheduler::admit(const SequencePtr& sequence, StepPlan& plan) {
  Tenant& tenant = tenant_of(*sequence);
  // Preempted with a token in flight: its value is needed to compute the sequence again.
  if (sequence->num_pending > 0 || !worth_a_look(*sequence, tenant)) return false;
  Admission admission = look_up(*sequence);
  if (admission.uses_cache && prefix_is_coming(*sequence, admission)) return false;
  if (!has_adapter_place(*sequence)) {
    refuse(*sequence, admission);
    return false;
  }
  if (!fits(admission) && take_blocks(*sequence, admission, plan)) admission = look_up(*sequence);
  if (!fits(admission)) {
    refuse(*sequence, admission);
    return false;
  }
  if (!has_slot()) {
    if (!take_slot(*sequence, plan)) return false;
    admission = look_up(*sequence);  // blocks of the victim may be among its hits
  }
  leave_waiting(*sequence);
  tenant.refused_arrival = 0;
  start(*sequence, admission, plan);
  start_running(sequence);
  return true;
}

bool Scheduler::fits(const Admission& admission) const {
  return running_.empty() || admission.blocks_wanted + growth() <= blocks_.num_available();
}

bool Scheduler::has_adapter_place(const Sequence& sequence) const {
  const int32_t adapter = sequence.request.adapter;
  return adapter < 0 || options_.max_adapters == 0 || adapter_loads_.is_running(adapter) ||
         adapter_loads_.num_running() < options_.max_adapters;
}

void Scheduler::refuse(const Sequence& sequence, const Admission& admission) {
  Tenant& tenant = tenant_of(sequence);
  if (tenant.refused_arrival == 0) tenant.refused_at = num_started_;
  tenant.refused_arrival = sequence.arrival;
  tenant.refused_wanted = admission.blocks_wanted + growth();
}

// The tenant with nothing running that others have passed often enough; null: none.
const Scheduler::Tenant* Scheduler::find_overdue() const {
  const Tenant* first = nullptr;
  for (const auto& [id, tenant] : tenants_) {
    if (tenant.num_running > 0 || tenant.refused_arrival == 0) continue;
    if (num_started_ - tenant.refused_at < options_.max_num_seqs) continue;
    if (!first || tenant.refused_at < first->refused_at) first = &tenant;
  }
  return first;
}

// Blocks that a running sequence will soon want: for the tokens it has, and one to go on with,
// unless it ends before. They are left to it, or else a newcomer would be thrown out again at once.
int64_t Scheduler::growth_of(const Sequence& sequence) const {
  const int64_t from = sequence.kv_len;
  const int64_t soon = (blocks_.blocks_for(sequence.target_len()) + 1) * options_.block_size;
  const int64_t ever = sequence.longest_len(options_.max_model_len);
  const int64_t end = std::max(from, std::min(soon, ever));
  return std::max<int64_t>(0, most_blocks(from, end) - sequence.num_held());
}

int64_t Scheduler::most_blocks(int64_t from, int64_t end) const {
  return demand_.most_blocks(from, end, std::min(options_.max_num_batched_tokens, end - from));
}

int64_t Scheduler::growth() const {
  int64_t sum = 0;
  for (const SequencePtr& sequence : running_) sum += growth_of(*sequence);
  return sum;
}

bool Scheduler::worth_a_look(const Sequence& sequence, const Tenant& tenant) const {
  return running_.empty() || sequence.arrival != tenant.refused_arrival ||
         blocks_.num_available() >= tenant.refused_wanted || num_plans_ % kPlansBetweenLooks == 0;
}

// Finds the cached prefix (into hits_) and what else the sequence needs for all its tokens.
Scheduler::Admission Scheduler::look_up(const Sequence& sequence) {
  Admission admission;
  hits_.clear();
  admission.uses_cache = options_.enable_prefix_caching &&
                         (!has_state() || checkpoints_.num_slots() > 0) &&
                         !sequence.request.reads_every_token();
  const auto length = static_cast<int64_t>(sequence.tokens.size());
  if (admission.uses_cache) {
    cache_.lookup(sequence.cache_root, sequence.tokens, hits_);
    cut_hits(length);
  }
  const auto num_hits = static_cast<int64_t>(hits_.size());
  // The last token is computed in any case, for its logits.
  admission.kv_len =
      has_state() ? restorable(length) : std::min(num_hits * options_.block_size, length - 1);
  int64_t held = 0, unowned = 0;
  for (size_t t = 0; t < demand_.num_tables(); ++t)
    for (int64_t i = demand_.first_seen(t, admission.kv_len); i < num_hits; ++i, ++held)
      unowned += blocks_.ref_count(cache_.block(hits_[i], t)) == 0;
  const int64_t most = most_blocks(admission.kv_len, length);
  admission.blocks_wanted = std::max<int64_t>(0, most - held) + unowned;
  return admission;
}

// Leaves of hits_ the longest prefix that can be continued: its end sees no token in a block that
// was given up.
void Scheduler::cut_hits(int64_t length) {
  std::ranges::fill(hit_runs_, 0);
  int64_t usable = 0;
  for (int64_t n = 1; n <= static_cast<int64_t>(hits_.size()); ++n) {
    const int64_t next = std::min(n * options_.block_size, length - 1);
    bool has_all = true;
    for (size_t t = 0; t < hit_runs_.size(); ++t) {
      const bool has_block = cache_.block(hits_[n - 1], t) != PrefixCache::kNone;
      hit_runs_[t] = has_block ? hit_runs_[t] + 1 : 0;
      has_all &= hit_runs_[t] >= n - demand_.first_seen(t, next);
    }
    if (has_all) usable = n;
  }
  hits_.resize(usable);
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
    if (other.cache_root != sequence.cache_root) return false;
    const auto [end, ignored] = std::mismatch(sequence.tokens.begin(), sequence.tokens.end(),
                                              other.tokens.begin(), other.tokens.end());
    const int64_t common = end - sequence.tokens.begin();
    if (!has_state() && chunk.start >= common) return false;  // it is there, or given up again
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
  sequence.kv_len = admission.kv_len;
  sequence.registered_blocks = static_cast<int64_t>(hits_.size());
  sequence.shared_len = sequence.registered_blocks * options_.block_size;
  for (size_t t = 0; t < sequence.tables.size(); ++t) share_hits(sequence, t);
  sequence.cache_node = hits_.empty() ? PrefixCache::kNone : hits_.back();
  cache_.hold(sequence.cache_node);
  if (has_state()) start_state(sequence, plan);
  sequence.table_id = static_cast<uint64_t>(++num_started_);
  if (admission.uses_cache) {
    stats_.prefix_queries += static_cast<int64_t>(sequence.tokens.size());
    stats_.prefix_hits += admission.kv_len;
  }
  if (sequence.stats.scheduled != TimePoint{}) return;  // resumed after a preemption
  ++stats_.started;
  sequence.stats.scheduled = Clock::now();
  sequence.stats.cached_tokens = admission.kv_len;
  const int64_t longest = sequence.longest_len(options_.max_model_len);
  sequence.tokens.reserve(longest + 1);
  for (BlockTable& table : sequence.tables) table.blocks.reserve(blocks_.blocks_for(longest));
}

// The blocks of hits_ that the sequence sees.
void Scheduler::share_hits(Sequence& sequence, size_t t) {
  BlockTable& table = sequence.tables[t];
  table.given_back = std::min(demand_.first_seen(t, sequence.kv_len), sequence.registered_blocks);
  table.blocks.assign(table.given_back, BlockTable::kGivenBack);
  for (int64_t i = table.given_back; i < sequence.registered_blocks; ++i) {
    table.blocks.push_back(cache_.block(hits_[i], t));
    blocks_.retain(table.blocks.back());
  }
}

}  // namespace quire::engine
