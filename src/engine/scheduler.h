#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/adapter_loads.h"
#include "engine/block_demand.h"
#include "engine/block_manager.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"
#include "engine/state_checkpoints.h"
#include "engine/state_slots.h"
#include "engine/step_cost.h"
#include "engine/waiting_limit.h"

namespace quire::engine {

enum class SchedulingPolicy { kFcfs, kPriority };

struct SchedulerOptions {
  // Of max_step_seconds: 2.2 times as long as the step's decode rows take alone, or
  // least_step_seconds: an answer of eight tokens has nine such steps within 0.1 s.
  static constexpr double kAutoStepTime = -1;
  double least_step_seconds = 0.006;

  int64_t max_num_batched_tokens = 2048;
  // Of prompts whose log-probabilities are asked for: each of these tokens is projected to the
  // whole vocabulary, which takes the time of many others and 4 * vocabulary bytes. A quarter of
  // it where the step's time is limited.
  int64_t max_prompt_logprob_rows = 256;
  // While anything decodes, or another tenant has within a second, a step gets as many prompt
  // tokens as it is expected to take so long with, in seconds, and a few in any case. One step in
  // 16 gets none: the estimate needs to see the decode rows alone. With kAutoStepTime every other
  // one gets none where prompts are so deep that longer chunks in the steps between, of 2.7 times
  // what rows take alone, feed more. The same limit holds for the decode rows that one tenant has
  // beside others. 0: no limit.
  double max_step_seconds = 0;
  // Tokens: a smaller chunk is not worth reading its context for. A step gets one in any case, and
  // tenants whose part of the time is shorter take turns from step to step; a turn has 16 tokens
  // where min_chunk is less and the step's time allows them.
  int64_t min_chunk = 4;
  // Whether a step takes longer merely because it has chunks of prompts: see StepCost.
  bool chunks_have_base = false;
  int64_t max_num_seqs = 128;
  int64_t max_adapters = 0;      // different ones among running requests; 0: no limit
  int64_t max_model_len = 2048;  // so that any sequence can run alone (BlockDemand::least_blocks)
  int64_t num_blocks = 0;
  int64_t block_size = 16;
  // Of each block table, see BlockDemand. Models with recurrent state have one table and no window.
  std::vector<int64_t> windows = {-1};
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
  StepLoad load;
  bool empty() const { return items.empty(); }
};

// A token that became known, and whether it ended its sequence.
struct CommittedToken {
  Sequence* sequence;  // of the plan
  size_t item = 0;     // index in the plan
  int32_t token = -1;  // -1: dropped, the request wanted none (max_tokens 0)
  std::optional<FinishReason> finish = {};
  std::optional<int32_t> stop_token = {};
};

// Decides what each step computes. Host data only. One batch kind: decode, chunked prefill and
// whole prefill are just num_tokens. At most one step may be launched and not yet committed when
// plan() is called.
//
// Order: by arrival. With the priority policy a tenant's requests exchange their places by
// priority; among those of different tenants priorities do not count.
//
// Prompts share the tokens of a step that decode rows leave, whether they run or wait:
//   - tenants take turns and get equal parts; what one does not use goes to the others,
//   - in a tenant the shortest rest goes first, but its first prompt in order has a quarter of the
//     part, so that none starves. With the priority policy a better priority goes before that.
// Decode rows go before prompts. While several tenants decode, or have within a second, a step has
// at most so many rows of each that it keeps its time (see max_step_seconds), but as many as the
// tenant with fewest has; the rows of one tenant take turns. Alone a tenant has all its rows in
// every step.
//
// A waiting request may be passed by shorter ones of its tenant, but by none once it was refused
// for lack of blocks, or because enough other adapters run. A tenant with nothing running whose
// request is refused is passed by at most max_num_seqs requests of others; then nothing else starts
// until it fits. So every request starts.
//
// A tenant's share of slots and blocks is their number divided by that of the tenants with
// requests. A request that stays within its tenant's share gets its place at the cost of tenants
// that hold more (but never of a tenant's first running sequence): they are preempted. When running
// sequences run out of blocks, the same ones go first, and then the last in order. The first in
// order is never preempted and can take from all others, so it always gets on, and so does every
// sequence in time.
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
  // Decode rows go first, then chunks of prompts while tokens, time, slots and blocks last. When
  // blocks run out, a running sequence is preempted (see above): its blocks are freed and it waits
  // again, to be recomputed. If that would be the very one that needs a block, it sits out this
  // step.
  //
  // Launch the plan whole, before plan() is called again, or else drop_prefix_cache(): later plans
  // count on its K and V. It can be empty while there is work: every sequence then waits for its
  // last token to be committed.
  StepPlan plan();

  // In place of a token that a later call of commit makes known, for a plan of just that item. The
  // sequence is `postponed` meanwhile; if it is preempted, it forgets the row.
  static constexpr int32_t kPostponedToken = -2;

  // Makes known the tokens that `plan` sampled (tokens[i] for the i-th item with `samples`). Items
  // whose sequence has finished since are skipped. Finished sequences have their blocks freed here.
  // The result is valid until the next call of plan, commit or recycle.
  const std::vector<CommittedToken>& commit(const StepPlan& plan, std::span<const int32_t> tokens);

  // How long a step with this load took: later plans' chunks follow from it (max_step_seconds).
  void observe(const StepLoad& load, double seconds);

  // Optional: takes back a plan that is done with, so that a later one allocates nothing.
  void recycle(StepPlan&& plan);

  // After a failed step: finish() its sequences first. Then forgets all cached blocks, and preempts
  // what still runs, since no K and V can be trusted.
  void drop_prefix_cache();

  int64_t num_waiting() const { return num_waiting_; }
  int64_t num_waiting_tokens() const { return num_waiting_tokens_; }  // of their prompts
  LoadByTenant waiting_by_tenant() const;
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  const AdapterLoads& adapter_loads() const { return adapter_loads_; }
  bool has_work() const { return num_waiting() + num_running() > 0; }
  const SchedulerOptions& options() const { return options_; }
  const BlockManager& blocks() const { return blocks_; }
  BlockManager& blocks() { return blocks_; }
  const StateSlots& state_slots() const { return state_slots_; }
  const StateCheckpoints& state_checkpoints() const { return checkpoints_; }
  const PrefixCache& prefix_cache() const { return cache_; }
  const BlockDemand& demand() const { return demand_; }

  struct Stats {
    int64_t preemptions = 0, prefix_queries = 0, prefix_hits = 0;  // the last two in tokens
    int64_t prefix_evictions = 0;                                  // blocks
    int64_t state_saves = 0, state_restores = 0;
    int64_t rows_put_off = 0;  // decode rows left to a later step for the sake of other tenants
    int64_t started = 0, ended = 0;  // requests: those that have run, and are over
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
    int64_t kv_len = 0;         // tokens that need not be computed
    int64_t blocks_wanted = 0;  // available blocks that all its tokens take
  };
  // The requests of one tenant; it is there while it has any.
  struct Tenant {
    std::deque<SequencePtr> waiting;  // in order
    int64_t num_running = 0;
    int64_t waiting_tokens = 0;   // of their prompts
    size_t next_place = 0;        // of order_running()
    uint64_t closed_in_plan = 0;  // the last plan that can start no more of its requests
    // Of its request that did not fit last time, 0: none; the blocks that this one waits for, and
    // the requests that had started when its tenant was first refused.
    uint64_t refused_arrival = 0;
    int64_t refused_wanted = 0, refused_at = 0;
    int64_t num_blocks = 0;  // of its running sequences, after count_blocks()
    int64_t fed = 0;         // prompt tokens that count for its turn: see take_turns()
  };
  // What prompts may still add to the step.
  struct Room {
    int64_t tokens = 0;
    double seconds = 0;
    int64_t logprob_rows = 0;  // of the step; parts have none of their own
  };
  // `end`: what `fed` of the tenant is after it.
  struct Turn {
    uint64_t tenant = 0;
    int64_t end = 0;
  };
  // The decode rows that a tenant could have in the step.
  struct RowShare {
    uint64_t tenant = 0;
    int64_t rows = 0, context = 0;  // the contexts' sum, in tokens
  };
  struct BlockOwners {
    int32_t count = 0;
    const Sequence* last = nullptr;
  };

  bool has_state() const { return options_.num_state_slots > 0; }
  bool before(const Sequence& a, const Sequence& b) const;
  void enqueue(SequencePtr sequence);
  void leave_waiting(const Sequence& sequence);
  void start_running(SequencePtr sequence);
  void order_running();
  void leave_running(const Sequence& sequence);
  void preempt(size_t index, StepPlan& plan);
  void release_blocks(Sequence& sequence);
  void give_back_unseen(Sequence& sequence);
  void touch_branches(const Sequence& sequence);
  void touch_seen(int32_t node, int64_t length);

  bool is_row(const Sequence& sequence) const;
  bool is_company_about() const;
  void plan_decodes(StepPlan& plan);
  void share_rows();
  int64_t most_rows_of_a_tenant();
  void count_rows();
  StepLoad load_of_rows(int64_t most) const;
  int64_t reserve(Sequence& sequence, int64_t num_tokens, StepPlan& plan);
  static void add_tokens(StepItem& item, int64_t num_tokens, StepPlan& plan);
  void remove_item(StepPlan& plan, const Sequence& sequence);

  void plan_prompts(StepPlan& plan);
  void take_turns(Room& room, StepPlan& plan);
  void feed_tenant(uint64_t id, Room part, Room& room, StepPlan& plan);
  bool feed(const SequencePtr& sequence, Room& part, Room& room, StepPlan& plan);
  StepItem& chunk_of(const SequencePtr& sequence);
  int64_t chunk_within(const Sequence& sequence, const Room& part, const Room& room) const;
  bool others_decoded_lately() const;
  double step_limit(double alone) const;
  double step_limit(double alone, double ratio) const;
  double seconds_of_rows(const StepPlan& plan) const;
  double seconds_for_chunks(const StepPlan& plan, double rows, double ratio) const;
  bool leaves_its_time(const StepPlan& plan, double rows) const;
  bool rows_go_alone(const StepPlan& plan) const;
  bool wants_tokens(const Sequence& sequence) const;
  SequencePtr first_prompt(uint64_t id);
  SequencePtr shortest_prompt(uint64_t id);
  bool may_start(const Tenant& tenant) const;

  bool admit(const SequencePtr& sequence, StepPlan& plan);
  bool fits(const Admission& admission) const;
  bool has_adapter_place(const Sequence& sequence) const;
  bool has_slot() const { return num_running() < num_slots(); }
  int64_t num_slots() const;
  void refuse(const Sequence& sequence, const Admission& admission);
  const Tenant* find_overdue() const;
  Admission look_up(const Sequence& sequence);
  void cut_hits(int64_t length);
  bool prefix_is_coming(const Sequence& sequence, const Admission& admission) const;
  void start(Sequence& sequence, const Admission& admission, StepPlan& plan);
  bool worth_a_look(const Sequence& sequence, const Tenant& tenant) const;
  int64_t growth_of(const Sequence& sequence) const;
  int64_t growth() const;
  int64_t most_blocks(int64_t from, int64_t end) const;
  void share_hits(Sequence& sequence, size_t table);

  Tenant& tenant_of(const Sequence& sequence) { return tenants_.at(sequence.request.tenant); }
  const Tenant& tenant_of(const Sequence& sequence) const {
    return tenants_.at(sequence.request.tenant);
  }
  void drop_if_empty(uint64_t tenant);
  void count_blocks();
  std::optional<size_t> pick_victim(const Sequence& taker);
  bool is_first_of_tenant(size_t index) const;
  bool may_take_slot(const Tenant& tenant) const;
  bool take_slot(const Sequence& taker, StepPlan& plan);
  bool take_blocks(const Sequence& taker, const Admission& admission, StepPlan& plan);

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
  void commit_token(const StepPlan& plan, size_t item, int32_t token);
  void check_sequence(const Sequence& sequence, std::vector<BlockOwners>& owners) const;
  void check_table(const Sequence& sequence, size_t table, std::vector<BlockOwners>& owners) const;
  void check_queues() const;
  void check_tenants() const;
  void check_state_slots() const;

  const SchedulerOptions options_;
  const BlockDemand demand_;
  PrefixCache cache_;
  BlockManager blocks_;
  StateSlots state_slots_;
  StateCheckpoints checkpoints_;
  std::map<uint64_t, Tenant> tenants_;
  int64_t num_waiting_ = 0, num_waiting_tokens_ = 0;
  AdapterLoads adapter_loads_;
  std::vector<SequencePtr> running_;  // in order
  StepCost cost_;
  double seconds_ = 0;                     // that steps have taken
  std::map<uint64_t, double> decoded_at_;  // by tenant: seconds_ at its last row, if lately
  int64_t least_fed_ = 0;                  // of the tenant whose turn it was last
  uint64_t last_arrival_ = 0;
  Stats stats_;

  // Of the plan being made: chunks of prompts, which come after the decode rows, running sequences
  // whose prompts are not fed yet, sequences with a decode row, the tenants that take turns, the
  // one that all others wait for.
  std::vector<StepItem> chunks_;
  std::vector<SequencePtr> prompts_;
  std::vector<Sequence*> rows_;       // by tenant, the one that goes first first
  std::vector<RowShare> row_shares_;  // by tenant
  std::vector<Turn> turns_;
  const Tenant* overdue_ = nullptr;
  uint64_t num_plans_ = 0;
  int64_t mixed_plans_ = 0;         // with decode rows and chunks, since the last one of rows alone
  bool time_was_left_ = false;      // by the last plan, to the chunks of this one
  uint64_t num_turns_ = 0;          // of decode rows
  int64_t plans_of_many_rows_ = 0;  // where one tenant could have more rows than another
  int64_t num_started_ = 0;         // resumed ones too

  std::vector<int32_t> hits_;              // what look_up found: nodes of the prefix cache
  std::vector<int64_t> hit_runs_;          // scratch of look_up, by table
  std::vector<int32_t> offered_;           // scratch of register_full_blocks, by table
  std::vector<CommittedToken> committed_;  // what commit returned
  std::vector<StepPlan> spare_plans_;
};

}  // namespace quire::engine
