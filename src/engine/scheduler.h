#pragma once
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "engine/block_manager.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"
#include "engine/state_checkpoints.h"
#include "engine/state_slots.h"

namespace quire::engine {

enum class SchedulingPolicy { kFcfs, kPriority };

struct SchedulerOptions {
  int64_t max_num_batched_tokens = 2048;
  int64_t max_num_seqs = 128;
  int64_t max_model_len = 2048;  // at most num_blocks * block_size: any sequence can run alone
  int64_t num_blocks = 0;
  int64_t block_size = 16;
  // Sequences whose recurrent state fits; 0: the model has none. Prefixes of a model that has are
  // continued from saved states, which need slots of their own, numbered behind these.
  int64_t num_state_slots = 0;
  int64_t num_state_checkpoints = 0;        // 0: no prefix is reused
  int64_t state_checkpoint_interval = 512;  // tokens, rounded up to whole blocks; 0: only at the
                                            // ends of prompts and where they part
  int64_t min_checkpoint_tokens = 64;  // that one of the latter must save: it ends a chunk early
  bool enable_prefix_caching = true;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  std::vector<int32_t> eos_token_ids = {};
  BlockHash block_hash = hash_block;  // of the prefix cache; tests pass one that collides
};

// What one sequence does in a step: feeds tokens [start, start + num_tokens).
struct StepItem {
  SequencePtr sequence;
  int64_t start = 0;
  int64_t num_tokens = 0;
  bool samples = false;        // the last of them yields a new token
  bool feeds_pending = false;  // the last of them is the device token of the step before
};

// One state slot is copied to another.
struct StateCopy {
  int32_t from = 0, to = 0;
};

// One step. Decode rows (num_tokens == 1) first.
struct StepPlan {
  std::vector<StepItem> items;
  std::vector<StateCopy> restores;  // before the items: checkpoints to sequences' slots
  std::vector<StateCopy> saves;     // after them: sequences' slots to checkpoints
  int64_t num_tokens = 0;
  bool empty() const { return items.empty(); }
};

// A token that became known, and whether it ended its sequence.
struct CommittedToken {
  SequencePtr sequence;
  size_t item = 0;     // index in the plan
  int32_t token = -1;  // -1: dropped, the request wanted none (max_tokens 0)
  std::optional<FinishReason> finish = {};
  std::optional<int32_t> stop_token = {};
};

// Decides what each step computes. Host data only. One batch kind: decode, chunked prefill and
// whole prefill are just num_tokens. At most one step may be launched and not yet committed when
// plan() is called.
//
// Order: by arrival (with the priority policy: by priority, then arrival). Running sequences go
// before waiting ones, and nobody overtakes a waiting one that does not fit yet. The first in order
// can take blocks from all others, so it always gets on, and so does everybody in turn.
class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // `tokens` holds the prompt: at least one token, at most max_model_len.
  void add(SequencePtr sequence);
  // Takes the sequence out of its queue and returns its blocks. Rows of it that are in flight are
  // ignored at commit. Does nothing if it has finished already.
  void finish(Sequence& sequence);

  // Picks the next step and reserves its blocks; advances kv_len and num_pending as if it had run.
  // Running sequences go first (one token each, then the rest of unfinished prefills), then waiting
  // ones while budget, slots and blocks last. When blocks run out, the running sequence that
  // arrived last (or has the worst priority) is preempted: its blocks are freed and it waits again,
  // to be recomputed. If that would be the very one that needs a block, it sits out this step.
  //
  // Launch the plan whole, before plan() is called again, or else drop_prefix_cache(): later plans
  // count on its K and V. It can be empty while there is work: every sequence then waits for its
  // last token to be committed.
  StepPlan plan();

  // Makes known the tokens that `plan` sampled (tokens[i] for the i-th item with `samples`). Items
  // whose sequence has finished since are skipped. Finished sequences have their blocks freed here.
  // The result is valid until the next call of plan, commit or recycle.
  const std::vector<CommittedToken>& commit(const StepPlan& plan, std::span<const int32_t> tokens);

  // Optional: takes back a plan that is done with, so that a later one allocates nothing.
  void recycle(StepPlan&& plan);

  // After a failed step: finish() its sequences first. Then forgets all cached blocks, and preempts
  // what still runs, since no K and V can be trusted.
  void drop_prefix_cache();

  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  bool has_work() const { return num_waiting() + num_running() > 0; }
  const SchedulerOptions& options() const { return options_; }
  const BlockManager& blocks() const { return blocks_; }
  BlockManager& blocks() { return blocks_; }
  const StateSlots& state_slots() const { return state_slots_; }
  const StateCheckpoints& state_checkpoints() const { return checkpoints_; }
  const PrefixCache& prefix_cache() const { return cache_; }

  struct Stats {
    int64_t preemptions = 0, prefix_queries = 0, prefix_hits = 0;  // the last two in tokens
    int64_t state_saves = 0, state_restores = 0;
  };
  Stats stats() const { return stats_; }

  // Aborts the process (QUIRE_CHECK) unless free + cached + owned == total, every reference count
  // equals the tables that hold the block, no unshared block is in two tables, and no sequence can
  // write into a block that another one or the prefix cache reads.
  void check_integrity() const;

 private:
  // What a waiting sequence would start with.
  struct Admission {
    bool uses_cache = false;
    uint64_t node = PrefixCache::kRoot;  // of the last block in hits_
    int64_t kv_len = 0;                  // tokens that need not be computed
    int64_t blocks_wanted = 0;           // available blocks that all its tokens take
  };
  struct BlockOwners {
    int32_t count = 0;
    const Sequence* last = nullptr;
  };

  bool has_state() const { return options_.num_state_slots > 0; }
  bool before(const Sequence& a, const Sequence& b) const;
  void enqueue(SequencePtr sequence);
  void start_running(SequencePtr sequence);
  void preempt_last(StepPlan& plan);
  void release_blocks(Sequence& sequence);

  void plan_decodes(StepPlan& plan);
  void plan_prefills(StepPlan& plan);
  void admit_waiting(StepPlan& plan);
  bool admit_front(StepPlan& plan, int64_t& growth);
  Admission look_up(const Sequence& sequence);
  bool prefix_is_coming(const Sequence& sequence, const Admission& admission) const;
  void start(Sequence& sequence, const Admission& admission, StepPlan& plan);
  bool worth_a_look(const Sequence& sequence) const;
  int64_t growth_of(const Sequence& sequence) const;
  int64_t reserve(size_t index, int64_t num_tokens, StepPlan& plan);
  void add_item(StepPlan& plan, const SequencePtr& sequence, int64_t num_tokens);
  void remove_item(StepPlan& plan, const Sequence& sequence);

  int64_t restorable(int64_t length) const;
  void start_state(Sequence& sequence, StepPlan& plan);
  void place_checkpoints(Sequence& sequence) const;
  int64_t checkpoint_interval() const;
  int64_t next_checkpoint(const Sequence& sequence, int64_t position) const;
  int64_t cut_chunk(const Sequence& sequence, int64_t num_tokens) const;
  void plan_saves(StepPlan& plan);
  void attach_checkpoints(Sequence& sequence);
  void release_state(Sequence& sequence);
  int64_t coming_checkpoint(const StepItem& chunk, int64_t common) const;

  void register_full_blocks(Sequence& sequence);
  bool commit_token(const StepPlan& plan, size_t item, int32_t token);
  void check_sequence(const Sequence& sequence, std::vector<BlockOwners>& owners) const;
  void check_queues() const;
  void check_state_slots() const;

  const SchedulerOptions options_;
  PrefixCache cache_;
  BlockManager blocks_;
  StateSlots state_slots_;
  StateCheckpoints checkpoints_;
  std::deque<SequencePtr> waiting_;   // in order
  std::vector<SequencePtr> running_;  // in order
  uint64_t last_arrival_ = 0;
  Stats stats_;

  // Of the plan being made: chunks of more than one token, which come after the decode rows, and
  // whether somebody went without blocks.
  std::vector<StepItem> chunks_;
  bool short_of_blocks_ = false;

  // The waiting sequence that did not fit last time, and how many blocks it waits for.
  uint64_t refused_arrival_ = 0;
  int64_t refused_wanted_ = 0;
  uint64_t num_plans_ = 0;

  std::vector<int32_t> hits_;              // scratch of look_up
  std::vector<CommittedToken> committed_;  // what commit returned
  std::vector<StepPlan> spare_plans_;
};

}  // namespace quire::engine
