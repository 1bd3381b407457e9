#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "engine/block_manager.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"

namespace quire::engine {

enum class SchedulingPolicy { kFcfs, kPriority };

struct SchedulerOptions {
  int64_t max_num_batched_tokens = 2048;
  int64_t max_num_seqs = 128;
  int64_t max_model_len =
      2048;  // at most num_blocks * block_size: any admitted sequence can run alone
  int64_t num_blocks = 0;
  int64_t block_size = 16;
  bool enable_prefix_caching = true;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  std::vector<int32_t> eos_token_ids;
};

// What one sequence does in a step: feeds tokens [start, start + num_tokens).
struct StepItem {
  SequencePtr sequence;
  int64_t start = 0;
  int64_t num_tokens = 0;
  bool samples = false;        // the last of them yields a new token
  bool feeds_pending = false;  // the last of them is the device token of the step before
};

// One step. Decode rows (num_tokens == 1) first.
struct StepPlan {
  std::vector<StepItem> items;
  int64_t num_tokens = 0;
  bool empty() const { return items.empty(); }
};

// A token that became known, and whether it ended its sequence.
struct CommittedToken {
  SequencePtr sequence;
  size_t item = 0;  // index in the plan
  int32_t token = 0;
  std::optional<FinishReason> finish;
  std::optional<int32_t> stop_token;
};

// Decides what each step computes. Host data only. One batch kind: decode, chunked prefill and
// whole prefill are just num_tokens. At most one step may be launched and not yet committed when
// plan() is called.
class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);

  void add(SequencePtr sequence);
  // Takes the sequence out of its queue and returns its blocks. Rows of it that are in flight are
  // ignored at commit.
  void finish(Sequence& sequence);

  // Picks the next step and reserves its blocks; advances kv_len and num_pending as if it had run.
  // Running sequences go first (one token each, then the rest of unfinished prefills), then waiting
  // ones while budget, slots and blocks last. When blocks run out, the running sequence that
  // arrived last (or has the worst priority) is preempted: its blocks are freed and it waits again,
  // to be recomputed. The returned plan is valid until the next call.
  StepPlan plan();

  // Makes known the tokens that `plan` sampled (tokens[i] for the i-th item with `samples`). Items
  // whose sequence has finished since are skipped. Finished sequences have their blocks freed here.
  std::vector<CommittedToken> commit(const StepPlan& plan, std::span<const int32_t> tokens);

  // After a failed step: forgets all cached blocks, since their contents cannot be trusted.
  void drop_prefix_cache();

  int64_t num_waiting() const;
  int64_t num_running() const;
  bool has_work() const { return num_waiting() + num_running() > 0; }
  const SchedulerOptions& options() const { return options_; }
  BlockManager& blocks() { return blocks_; }

  struct Stats {
    int64_t preemptions = 0, prefix_queries = 0, prefix_hits = 0;  // the last two in tokens
  };
  Stats stats() const { return stats_; }

  // Aborts the process (QUIRE_CHECK) unless free + cached + owned == total, every reference count
  // equals the tables that hold the block, and no unshared block is in two tables.
  void check_integrity() const;

 private:
  SchedulerOptions options_;
  BlockManager blocks_;
  PrefixCache cache_;
  std::deque<SequencePtr> waiting_;
  std::vector<SequencePtr> running_;
  Stats stats_;
};

}  // namespace quire::engine
