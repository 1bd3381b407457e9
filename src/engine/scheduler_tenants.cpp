// Tenants' shares of slots and blocks, and who is preempted.
#include <algorithm>

#include "engine/scheduler.h"

namespace quire::engine {

void Scheduler::count_blocks() {
  for (auto& [id, tenant] : tenants_) tenant.num_blocks = 0;
  for (const SequencePtr& sequence : running_)
    tenant_of(*sequence).num_blocks += sequence->num_held();
}

// The last in order of those whose tenant holds more than its share of blocks, except its first
// sequence; else the last in order. None if that is the taker. What this plan has started stays.
std::optional<size_t> Scheduler::pick_victim(const Sequence& taker) {
  count_blocks();
  const int64_t share = options_.num_blocks / static_cast<int64_t>(tenants_.size());
  std::optional<size_t> victim;
  bool victim_is_over = false;
  for (size_t i = 0; i < running_.size(); ++i) {
    const Sequence& sequence = *running_[i];
    if (sequence.started_in_plan == num_plans_ && &sequence != &taker) continue;
    const bool is_over = tenant_of(sequence).num_blocks > share && !is_first_of_tenant(i);
    if (victim && victim_is_over && !is_over) continue;
    victim = i;
    victim_is_over = is_over;
  }
  if (victim && running_[*victim].get() == &taker) return std::nullopt;
  return victim;
}

bool Scheduler::is_first_of_tenant(size_t index) const {
  const uint64_t tenant = running_[index]->request.tenant;
  return std::none_of(running_.begin(), running_.begin() + static_cast<std::ptrdiff_t>(index),
                      [&](const SequencePtr& other) { return other->request.tenant == tenant; });
}

bool Scheduler::may_take_slot(const Tenant& tenant) const {
  return tenant.num_running < num_slots() / static_cast<int64_t>(tenants_.size());
}

// From the tenant that has most: as the taker's has less than its share, that one has more.
bool Scheduler::take_slot(const Sequence& taker, StepPlan& plan) {
  const auto most = std::max_element(
      tenants_.begin(), tenants_.end(),
      [](const auto& a, const auto& b) { return a.second.num_running < b.second.num_running; });
  if (most->second.num_running <= tenant_of(taker).num_running + 1) return false;
  for (size_t i = running_.size(); i-- > 0;) {
    const Sequence& sequence = *running_[i];
    if (sequence.request.tenant != most->first || sequence.started_in_plan == num_plans_) continue;
    if (is_first_of_tenant(i)) return false;
    preempt(i, plan);
    return true;
  }
  return false;
}

// Preempts sequences of tenants above their shares until `taker`, which stays within its own, fits;
// or none, if that would not be enough.
bool Scheduler::take_blocks(const Sequence& taker, const Admission& admission, StepPlan& plan) {
  count_blocks();
  const int64_t share = options_.num_blocks / static_cast<int64_t>(tenants_.size());
  if (tenant_of(taker).num_blocks + admission.blocks_wanted > share) return false;
  int64_t missing = admission.blocks_wanted + growth() - blocks_.num_available();
  std::vector<size_t> victims;  // last ones first
  for (size_t i = running_.size(); i-- > 0 && missing > 0;) {
    const Sequence& sequence = *running_[i];
    Tenant& tenant = tenant_of(sequence);
    if (tenant.num_blocks <= share || is_first_of_tenant(i)) continue;
    if (sequence.started_in_plan == num_plans_) continue;
    tenant.num_blocks -= sequence.num_held();
    missing -= growth_of(sequence);
    for (const BlockTable& table : sequence.tables)
      missing -= std::count_if(table.blocks.begin() + table.given_back, table.blocks.end(),
                               [&](int32_t block) { return blocks_.ref_count(block) == 1; });
    victims.push_back(i);
  }
  if (missing > 0) return false;
  for (const size_t victim : victims) preempt(victim, plan);
  return true;
}

}  // namespace quire::engine
