#include "delta_rule.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "layout.h"

namespace quire_kernels {

using quire::ops::GatedDeltaRuleTask;

void check_sequences(const DeltaSequences& s, int64_t tokens, int64_t num_slots) {
  const int64_t count = s.slots.size();
  require(s.cu_seqlens.size() == count + 1 && std::ssize(s.fresh) == count,
          "cu_seqlens, slots and fresh are of different batches");
  require(s.cu_seqlens[0] == 0 && s.cu_seqlens[count] == tokens, "cu_seqlens does not fit qkv");
  std::vector<bool> taken(static_cast<size_t>(num_slots));
  for (int64_t i = 0; i < count; ++i) {
    require(s.cu_seqlens[i] <= s.cu_seqlens[i + 1], "cu_seqlens must ascend");
    require(s.slots[i] >= 0 && s.slots[i] < num_slots, "a slot is outside the state");
    const auto slot = static_cast<size_t>(s.slots[i]);
    require(!taken[slot], "two sequences share a slot");
    taken[slot] = true;
  }
}

void run_delta_rule(quire::ThreadPool& pool, const quire::ops::GatedDeltaRuleParams& params,
                    const DeltaSequences& s) {
  constexpr int64_t kRows = quire::ops::kDeltaRows;
  const int64_t count = s.slots.size(), per_head = (params.v_dim + kRows - 1) / kRows;
  const int64_t group = params.v_heads / params.k_heads * per_head;  // blocks that share q and k
  // Smaller tasks if there were too few for the threads to end together.
  const int64_t blocks = count * params.k_heads * group;
  const int64_t size = std::clamp<int64_t>(blocks / (4 * pool.num_threads()), 1, group);
  std::vector<GatedDeltaRuleTask> tasks;
  for (int64_t i = 0; i < count; ++i) {
    if (s.cu_seqlens[i] == s.cu_seqlens[i + 1]) continue;
    for (int64_t k_head = 0; k_head < params.k_heads; ++k_head)
      for (int64_t first = 0; first < group; first += size)
        tasks.push_back({.begin = s.cu_seqlens[i],
                         .end = s.cu_seqlens[i + 1],
                         .slot = s.slots[i],
                         .is_fresh = s.fresh[i] != 0,
                         .head = (k_head * group + first) / per_head,
                         .first_row = first % per_head * kRows,
                         .num_blocks = std::min(size, group - first)});
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
