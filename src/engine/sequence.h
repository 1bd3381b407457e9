#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/request.h"

namespace quire::engine {

struct HeldCheckpoint {
  int64_t position = 0;  // tokens that the saved state has seen
  int32_t slot = -1;
};

// Where a sequence's recurrent state is saved, beside every interval.
struct SequenceCheckpoints {
  int64_t branch = 0, end = 0;       // positions; 0: none
  std::vector<HeldCheckpoint> held;  // saved by launched steps, their blocks not in the cache yet
  int32_t decode_block = -1;         // block with the last one of the answer; -1: none
};

// Where the K and V of a sequence's tokens lie for layers that see equally far back: block i holds
// tokens [i * block size, (i + 1) * block size).
struct BlockTable {
  static constexpr int32_t kGivenBack = -1;
  std::vector<int32_t> blocks;  // owned through the BlockManager, but for the given back ones
  int64_t given_back = 0;       // so many leading ones, which no query sees any more: kGivenBack

  int64_t num_held() const { return static_cast<int64_t>(blocks.size()) - given_back; }
};

// What every step asks of a request that decodes. Does not change while it is with the scheduler.
struct RowFacts {
  RowFacts() = default;
  explicit RowFacts(const Request& request);

  int64_t max_tokens = 0;
  uint64_t tenant = 0;
  int32_t logprobs = -1, prompt_logprobs = -1, adapter = -1;
  bool pools = false, ignores_eos = false, has_stop_tokens = false;
};

struct Generation;  // in step_runner.h

// One generation in progress, as the scheduler sees it. Lookahead is part of this state:
//
//   tokens       prompt and produced tokens whose values the host knows (tok_len = tokens.size())
//   num_pending  tokens sampled on the device whose values the host has not read: 0 or 1 when a
//                step is planned, 2 for a moment, after step t+1 is launched and before t is read
//   kv_len       tokens whose K and V are written or will be by a launched step
//
//   state        of a model with recurrent layers, in state_slot: that after kv_len tokens. Every
//                launched step leaves it so, and nothing is ever taken back from a sequence that
//                goes on: a row whose token turns out to be behind a stop belongs to a sequence
//                that has ended, a preempted one starts again from zeros or a checkpoint.
//
// Invariant: kv_len <= tokens.size() + num_pending. A row that feeds position kv_len samples the
// token after it when kv_len + 1 == tokens.size() + num_pending.
struct Sequence {
  enum class State : uint8_t { kWaiting, kRunning, kFinished };

  // What every step reads and writes of a sequence that decodes stands together: with some hundred
  // of them a step's time on the host is that of fetching these lines.
  std::vector<int32_t> tokens;
  int64_t prompt_len = 0;
  int64_t kv_len = 0;
  int32_t num_pending = 0;
  // Where the pending token lies in the last launched step's sampled tokens; -1: none.
  int32_t pending_row = -1;
  // Leading tokens whose K and V came from the prefix cache: never written again. At the start
  // kv_len + 1 at most (see Scheduler::start), but with recurrent state, which may have to be
  // computed from further back: then the tokens up to here are fed without writing.
  int64_t shared_len = 0;
  int32_t state_slot = -1;  // of its recurrent state, while it runs; -1: none
  // Its last row is computed but not sampled: a grammar's mask is missing. The token counts as
  // pending, and nothing can be fed before it is known.
  bool postponed = false;
  State state = State::kWaiting;

  RequestId id = 0;
  std::vector<BlockTable> tables = std::vector<BlockTable>(1);  // all equally long
  uint64_t table_id = 0;                                        // of LentTable: of this start
  Generation* generation = nullptr;  // what StepRunner keeps for it, until it has ended
  int64_t registered_blocks = 0;     // leading blocks already offered to the prefix cache

  uint64_t put_off_in_plan = 0;  // the last plan that left its row to a later one
  int32_t cache_node = -1;       // prefix cache position after registered_blocks, held
  RowFacts facts;                // of `request`, set by Scheduler::add
  RequestStats stats;

  SequenceCheckpoints checkpoints;
  Request request;  // its prompt is in tokens
  // Of the prefix cache's tree: the adapter's number, a blank and the salt. Keys and values of a
  // prompt differ with the adapter, and no salt can pass for another adapter's.
  std::string cache_root;
  uint64_t arrival = 0;          // counts up; set by Scheduler::add
  uint64_t started_in_plan = 0;  // the last plan that it began to run in
  uint64_t settled_in_plan = 0;  // the last plan that can feed it no more tokens
  uint64_t last_turn = 0;        // of its rows, or its start: counts up in the order of turns
  uint64_t seed = 0;

  int64_t target_len() const { return static_cast<int64_t>(tokens.size()) + num_pending; }
  int64_t num_output() const { return static_cast<int64_t>(tokens.size()) - prompt_len; }
  // Blocks of each table, given back or not; and those that it has of all tables.
  int64_t table_len() const { return static_cast<int64_t>(tables.front().blocks.size()); }
  int64_t num_held() const;

  // Tokens that it has at the very end, at most.
  int64_t longest_len(int64_t max_model_len) const;
  // The pending token will end it by its length, whatever its value: it needs no further row.
  bool ends_with_pending(int64_t max_model_len) const;
  // Back to the state before its first step, but for what it has produced and what is in flight.
  void forget_kv();
};

using SequencePtr = std::shared_ptr<Sequence>;

// Why a sequence ends with its last known token; no `finish` if it goes on.
struct StopDecision {
  std::optional<FinishReason> finish = {};
  std::optional<int32_t> stop_token = {};  // the stop_token_ids member that ended it
};

// Looks at the last token: eos, then stop_token_ids, then the lengths. min_tokens is the sampler's
// business (it bans stop tokens until then); one that comes all the same ends the sequence, because
// nothing else was allowed.
StopDecision check_stop(const Sequence& sequence, std::span<const int32_t> eos_token_ids,
                        int64_t max_model_len);

}  // namespace quire::engine
