#include "delta_rule.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "layout.h"

namespace quire_kernels {

using quire::ops::GatedDeltaRuleTask;

void check_sequences(const DeltaSequences& s, int64_t tokens, int64_t num_slots) {
  const int64_t count = std::ssize(s.slots);
  require(std::ssize(s.cu_seqlens) == count + 1 && std::ssize(s.fresh) == count,
          "cu_seqlens, slots and fresh are of different batches");
  require(s.cu_seqlens[0] == 0 && s.cu_seqlens[count] == tokens, "cu_seqlens does not fit qkv");
  std::vector<bool> taken(static_cast<size_t>(num_slots));
  for (int64_t i = 0; i < count; ++i) {
    require(s.cu_seqlens[i] <= s.cu_seqlens[i + 1], "cu_seqlens must ascend");
    require(s.slots[i] >= 0 && s.slots[i] < num_slots, "a slot is outside the state");
    require(!taken[s.slots[i]], "two sequences share a slot");
    taken[s.slots[i]] = true;
  }
}

void run_delta_rule(quire::ThreadPool& pool, const quire::ops::GatedDeltaRuleParams& params,
                    const DeltaSequences& s) {
  std::vector<GatedDeltaRuleTask> tasks;
  for (int64_t i = 0; i < std::ssize(s.slots); ++i) {
    if (s.cu_seqlens[i] == s.cu_seqlens[i + 1]) continue;
    for (int64_t head = 0; head < params.v_heads; ++head)
      for (int64_t row = 0; row < params.v_dim; row += quire::ops::kDeltaRows)
        tasks.push_back({.begin = s.cu_seqlens[i],
                         .end = s.cu_seqlens[i + 1],
                         .slot = s.slots[i],
                         .is_fresh = s.fresh[i] != 0,
                         .head = head,
                         .first_row = row});
  }
  // Longest first, so that the short ones fill the threads' ends.
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const GatedDeltaRuleTask& a, const GatedDeltaRuleTask& b) {
                     return a.end - a.begin > b.end - b.begin;
                   });
  pool.parallel_for(std::ssize(tasks),
                    [&](int64_t i) { quire::ops::gated_delta_rule_cpu(params, tasks[i]); });
}

}  // namespace quire_kernels
