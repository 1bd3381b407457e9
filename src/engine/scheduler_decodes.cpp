// The decode rows of a step, and how many of them one tenant may have beside others.
#include <algorithm>
#include <limits>
#include <tuple>

#include "engine/scheduler.h"

namespace quire::engine {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
// One step in so many has only as many rows of each tenant as the one with fewest has: else what
// these would take, which the limit follows from, could be a guess for ever.
constexpr int64_t kFewRowsEvery = 16;

}  // namespace

bool Scheduler::is_row(const Sequence& sequence) const {
  return sequence.target_len() - sequence.kv_len == 1 && !sequence.postponed &&
         !sequence.ends_with_pending(options_.max_model_len);
}

void Scheduler::plan_decodes(StepPlan& plan) {
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (!is_row(sequence) || sequence.put_off_in_plan == num_plans_) continue;
    if (plan.num_tokens == options_.max_num_batched_tokens) return;
    const bool fits = reserve(sequence, 1, plan) == 1;
    i = std::min(i, running_.size() - 1);
    while (running_[i].get() != &sequence) --i;  // victims before it have left
    if (!fits) continue;
    plan.items.push_back({.sequence = running_[i], .start = sequence.kv_len});
    add_tokens(plan.items.back(), 1, plan);
  }
}

// Whether there are requests of several tenants, or a tenant other than the one has lately decoded.
bool Scheduler::is_company_about() const { return tenants_.size() > 1 || others_decoded_lately(); }

// Puts off the rows that are too many beside those of other tenants. Of one tenant those go that
// have waited longest.
void Scheduler::share_rows() {
  if (options_.max_step_seconds == 0 || !is_company_about()) return;
  rows_.clear();
  for (const SequencePtr& sequence : running_)
    if (is_row(*sequence)) rows_.push_back(sequence.get());
  if (rows_.empty()) return;
  std::ranges::sort(rows_, {}, [](const Sequence* row) {
    return std::tuple(row->request.tenant, row->last_turn, row->arrival);
  });
  const int64_t most = most_rows_of_a_tenant();
  int64_t of_tenant = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    const bool is_next = i > 0 && rows_[i]->request.tenant == rows_[i - 1]->request.tenant;
    of_tenant = is_next ? of_tenant + 1 : 1;
    if (of_tenant <= most) {
      rows_[i]->last_turn = ++num_turns_;  // whether or not there is a block for it
    } else {
      rows_[i]->put_off_in_plan = num_plans_;
      ++stats_.rows_put_off;
    }
  }
}

// Of rows_, in a step that keeps its time: what the step would take if every tenant had no more
// rows than the one with fewest, and 2.2 times that or least_step_seconds. No tenant is held to
// fewer than that one has.
int64_t Scheduler::most_rows_of_a_tenant() {
  count_rows();
  const auto fewest = std::ranges::min(row_shares_, {}, &RowShare::rows).rows;
  const auto most = std::ranges::max(row_shares_, {}, &RowShare::rows).rows;
  const bool others_lately = std::ranges::any_of(decoded_at_, [&](const auto& entry) {
    return std::ranges::find(row_shares_, entry.first, &RowShare::tenant) == row_shares_.end();
  });
  int64_t low = others_lately ? 1 : fewest, high = most;
  if (low == high) return kNoLimit;
  if (++plans_of_many_rows_ % kFewRowsEvery == 0) return low;
  const double limit = step_limit(cost_.decode_seconds(load_of_rows(low)));
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (cost_.decode_seconds(load_of_rows(middle)) <= limit) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

void Scheduler::count_rows() {
  row_shares_.clear();
  for (const Sequence* row : rows_) {
    if (row_shares_.empty() || row_shares_.back().tenant != row->request.tenant)
      row_shares_.push_back({.tenant = row->request.tenant});
    ++row_shares_.back().rows;
    row_shares_.back().context += row->kv_len + 1;
  }
}

// If no tenant has more rows than `most`; a tenant's contexts count as if they were alike.
StepLoad Scheduler::load_of_rows(int64_t most) const {
  StepLoad load;
  for (const RowShare& share : row_shares_) {
    const int64_t rows = std::min(share.rows, most);
    load.decode_rows += rows;
    load.decode_context += share.context * rows / share.rows;
  }
  return load;
}

}  // namespace quire::engine
