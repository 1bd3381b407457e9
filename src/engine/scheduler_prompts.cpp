// How prompts share what decode rows leave of a step.
#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "engine/scheduler.h"

namespace quire::engine {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();
// What kAutoStepTime means: a token takes at most about three times as long while others' prompts
// are fed, estimates being what they are and the rows' own contexts growing meanwhile.
constexpr double kAutoStepRatio = 2.2;
// The same of a step that comes after one which left it its time for chunks.
constexpr double kLongStepRatio = 2.7;
// So many times as many tokens a second are worth it.
constexpr double kWorthLeaving = 1.1;
// While prompts are fed beside decode rows, one step in so many has the rows alone: else what these
// take by themselves, which the limit follows from, would be an old estimate after a long prompt.
constexpr int64_t kRowsAloneEvery = 16;
// Tokens of a tenant's turn, if the step's time allows them: a prompt of some words is fed at once.
constexpr int64_t kTurn = 16;
// Of a tenant's waiting requests, so many are looked at for the shortest.
constexpr size_t kMostLooks = 64;

}  // namespace

void Scheduler::plan_prompts(StepPlan& plan) {
  for (const SequencePtr& sequence : running_)
    if (sequence->target_len() - sequence->kv_len > 1) prompts_.push_back(sequence);
  if (prompts_.empty() && num_waiting_ == 0) return;
  if (rows_go_alone(plan)) return prompts_.clear();
  const double rows = seconds_of_rows(plan);
  const bool is_long = time_was_left_;
  time_was_left_ = !is_long && leaves_its_time(plan, rows);
  if (time_was_left_) return prompts_.clear();
  overdue_ = find_overdue();
  Room room{.tokens = options_.max_num_batched_tokens - plan.num_tokens,
            .seconds = seconds_for_chunks(plan, rows, is_long ? kLongStepRatio : kAutoStepRatio),
            .logprob_rows = options_.max_prompt_logprob_rows};
  if (room.seconds < kNoLimit) room.logprob_rows = (room.logprob_rows + 3) / 4;
  for (int64_t before = room.tokens + 1; 0 < room.tokens && room.tokens < before;) {
    before = room.tokens;
    take_turns(room, plan);
  }
  prompts_.clear();
}

bool Scheduler::rows_go_alone(const StepPlan& plan) const {
  return options_.max_step_seconds != 0 && !plan.items.empty() &&
         mixed_plans_ >= kRowsAloneEvery - 1;
}

// Those who lately decoded beside prompts of other tenants are likely to come back, and must not
// find a long step under way.
bool Scheduler::others_decoded_lately() const {
  if (decoded_at_.size() != 1) return !decoded_at_.empty();
  const uint64_t one = decoded_at_.begin()->first;
  return std::ranges::any_of(tenants_, [&](const auto& tenant) { return tenant.first != one; });
}

// Of a step whose decode rows take so long by themselves, and which may take `ratio` times as long
// if it is up to us.
double Scheduler::step_limit(double alone, double ratio) const {
  return options_.max_step_seconds == SchedulerOptions::kAutoStepTime
             ? std::max(ratio * alone, options_.least_step_seconds)
             : options_.max_step_seconds;
}
double Scheduler::step_limit(double alone) const { return step_limit(alone, kAutoStepRatio); }

double Scheduler::seconds_of_rows(const StepPlan& plan) const {
  StepLoad rows;
  for (const StepItem& item : plan.items) rows.add_row(item.start);
  if (plan.items.empty()) rows.add_row(0);  // the limit is what a step with one row would have
  return cost_.decode_seconds(rows);
}

// `rows`: seconds_of_rows(plan).
double Scheduler::seconds_for_chunks(const StepPlan& plan, double rows, double ratio) const {
  const bool alone_in_step = plan.items.empty();
  if (options_.max_step_seconds == 0 || (alone_in_step && !others_decoded_lately()))
    return kNoLimit;
  const double limit = step_limit(rows, ratio) - cost_.chunk_base_seconds();
  return std::max(0.0, alone_in_step ? limit : limit - rows);
}

// A deep prompt's chunk takes most of a step's time to read its context, however short it is. Two
// steps, of which one has rows alone and the other a chunk that is long enough to be worth that
// reading, may feed more than chunks in both; rows wait no longer on average.
bool Scheduler::leaves_its_time(const StepPlan& plan, double rows) const {
  if (plan.items.empty() || num_waiting_ > 0 ||
      options_.max_step_seconds != SchedulerOptions::kAutoStepTime)
    return false;
  const auto shallowest = std::ranges::min_element(
      prompts_, {}, [](const SequencePtr& prompt) { return prompt->kv_len; });
  if (shallowest == prompts_.end()) return false;
  const int64_t start = (*shallowest)->kv_len, rest = (*shallowest)->target_len() - start;
  const double base = cost_.chunk_base_seconds();
  const auto tokens_within = [&](double seconds) {
    return std::min(rest, std::max(options_.min_chunk, cost_.chunk_within(seconds, start)));
  };
  const int64_t each = tokens_within(seconds_for_chunks(plan, rows, kAutoStepRatio));
  const int64_t both = tokens_within(seconds_for_chunks(plan, rows, kLongStepRatio));
  const double time_of_each = rows + base + cost_.chunk_seconds(start, each);
  const double time_of_both = 2 * rows + base + cost_.chunk_seconds(start, both);
  return static_cast<double>(both) * time_of_each >
         kWorthLeaving * static_cast<double>(each) * time_of_both;
}

// One round of the tenants with prompts, each with an equal part of what is left. Those go first
// who will have been fed least after their turn; whoever comes or comes back begins with as much as
// the one of them who has least (as in start-time fair queueing, Goyal et al. 1996). So a short
// prompt beside long ones does not wait for a turn of each.
void Scheduler::take_turns(Room& room, StepPlan& plan) {
  turns_.clear();
  for (const auto& [id, tenant] : tenants_) {
    const bool feeds = std::any_of(prompts_.begin(), prompts_.end(), [&](const auto& prompt) {
      return prompt->request.tenant == id && wants_tokens(*prompt);
    });
    if (!feeds && !may_start(tenant)) continue;
    const SequencePtr shortest = shortest_prompt(id);
    const int64_t next = shortest ? shortest->target_len() - shortest->kv_len : kTurn;
    turns_.push_back({.tenant = id, .end = tenant.fed + std::min(next, kTurn)});
  }
  if (turns_.empty()) return;
  std::ranges::sort(turns_, {}, [](const Turn& turn) { return std::tuple(turn.end, turn.tenant); });
  least_fed_ = std::max(least_fed_, tenants_.at(turns_.front().tenant).fed);
  for (size_t i = 0; i < turns_.size() && room.tokens > 0; ++i) {
    const auto parties = static_cast<int64_t>(turns_.size() - i);
    const int64_t before = room.tokens;
    feed_tenant(
        turns_[i].tenant,
        {.tokens = std::min(room.tokens, std::max(options_.min_chunk, room.tokens / parties)),
         .seconds = room.seconds / static_cast<double>(parties)},
        room, plan);
    tenants_.at(turns_[i].tenant).fed += before - room.tokens;
  }
}

void Scheduler::feed_tenant(uint64_t id, Room part, Room& room, StepPlan& plan) {
  const SequencePtr first = first_prompt(id);
  if (first && first != shortest_prompt(id)) {
    Room quarter{.tokens = (part.tokens + 3) / 4, .seconds = part.seconds / 4};
    const Room before = quarter;
    feed(first, quarter, room, plan);
    part.tokens -= before.tokens - quarter.tokens;
    if (part.seconds < kNoLimit) part.seconds -= before.seconds - quarter.seconds;
  }
  while (part.tokens > 0) {
    const SequencePtr next = shortest_prompt(id);
    if (!next || !feed(next, part, room, plan)) return;
  }
}

// Feeds what the part allows; starts the sequence first if it waits. False if there is no time for
// it. Else it has got tokens, or is settled, or its tenant is closed.
bool Scheduler::feed(const SequencePtr& sequence, Room& part, Room& room, StepPlan& plan) {
  const bool has_logprobs = sequence->request.sampling.prompt_logprobs >= 0;
  if (has_logprobs && room.logprob_rows == 0) {
    sequence->settled_in_plan = num_plans_;
    return true;
  }
  if (chunk_within(*sequence, part, room) == 0) return false;
  if (sequence->state == Sequence::State::kWaiting) {
    if (!admit(sequence, plan)) {
      tenant_of(*sequence).closed_in_plan = num_plans_;
      return true;
    }
    prompts_.push_back(sequence);
  }
  const int64_t allowed = chunk_within(*sequence, part, room), start = sequence->kv_len;
  const int64_t cut =
      cut_chunk(*sequence, allowed + 1);  // at most `allowed`: a state is saved there
  const int64_t fed = reserve(*sequence, std::min(cut, allowed), plan);
  if (cut <= allowed || fed < allowed || fed == sequence->target_len() - start)
    sequence->settled_in_plan = num_plans_;
  if (fed == 0) return true;
  add_tokens(chunk_of(sequence), fed, plan);
  const double seconds = room.seconds < kNoLimit ? cost_.chunk_seconds(start, fed) : 0;
  for (Room* left : {&part, &room}) {
    left->tokens -= fed;
    left->seconds = std::max(0.0, left->seconds - seconds);
  }
  if (has_logprobs) room.logprob_rows -= fed;
  return true;
}

// What the sequence has in this plan already, or nothing yet.
StepItem& Scheduler::chunk_of(const SequencePtr& sequence) {
  const auto chunk = std::find_if(chunks_.begin(), chunks_.end(), [&](const StepItem& other) {
    return other.sequence == sequence;
  });
  if (chunk != chunks_.end()) return *chunk;
  return chunks_.emplace_back(StepItem{.sequence = sequence, .start = sequence->kv_len});
}

int64_t Scheduler::chunk_within(const Sequence& sequence, const Room& part,
                                const Room& room) const {
  int64_t wanted = std::min(sequence.target_len() - sequence.kv_len, part.tokens);
  if (sequence.request.sampling.prompt_logprobs >= 0) wanted = std::min(wanted, room.logprob_rows);
  if (room.seconds == kNoLimit) return wanted;
  int64_t in_time = cost_.chunk_within(part.seconds, sequence.kv_len);
  if (const int64_t turn = std::max(options_.min_chunk, kTurn); in_time < turn)
    in_time = std::min(turn, cost_.chunk_within(room.seconds, sequence.kv_len));
  if (chunks_.empty()) in_time = std::max(in_time, options_.min_chunk);
  return std::min(wanted, in_time);
}

bool Scheduler::wants_tokens(const Sequence& sequence) const {
  return sequence.state == Sequence::State::kRunning && sequence.settled_in_plan != num_plans_;
}

bool Scheduler::may_start(const Tenant& tenant) const {
  return !tenant.waiting.empty() && tenant.closed_in_plan != num_plans_ &&
         (has_slot() || may_take_slot(tenant)) && (!overdue_ || overdue_ == &tenant);
}

SequencePtr Scheduler::first_prompt(uint64_t id) {
  SequencePtr first;
  const Tenant& tenant = tenants_.at(id);
  if (may_start(tenant) && tenant.waiting.front()->settled_in_plan != num_plans_)
    first = tenant.waiting.front();
  for (const SequencePtr& prompt : prompts_)
    if (prompt->request.tenant == id && wants_tokens(*prompt) &&
        (!first || before(*prompt, *first)))
      first = prompt;
  return first;
}

// By what is left of it; what the prefix cache knows of a waiting one is not taken off.
SequencePtr Scheduler::shortest_prompt(uint64_t id) {
  const bool by_priority = options_.policy == SchedulingPolicy::kPriority;
  const SequencePtr* best = nullptr;
  const auto consider = [&](const SequencePtr& prompt) {
    const auto rank = [&](const Sequence& s) {
      return std::tuple(by_priority ? s.request.priority : 0, s.target_len() - s.kv_len, s.arrival);
    };
    if (!best || rank(*prompt) < rank(**best)) best = &prompt;
  };
  for (const SequencePtr& prompt : prompts_)
    if (prompt->request.tenant == id && wants_tokens(*prompt)) consider(prompt);
  const Tenant& tenant = tenants_.at(id);
  const size_t looks = may_start(tenant) ? std::min(tenant.waiting.size(), kMostLooks) : 0;
  for (size_t i = 0; i < looks; ++i)
    if (tenant.waiting[i]->settled_in_plan != num_plans_) consider(tenant.waiting[i]);
  return best ? *best : nullptr;
}

}  // namespace quire::engine
