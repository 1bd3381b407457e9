#pragma once
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/cache_groups.h"
#include "engine/scheduler.h"
#include "ops/layout/batch_layout.h"
#include "ops/sample/sample.h"

namespace quire::engine {

// The distinct tokens of a sequence and how often they were produced, kept up to date for the
// penalties.
class TokenHistory {
 public:
  // Takes in tokens[size() .. tokens.size()).
  void update(const std::vector<int32_t>& tokens, int64_t prompt_len);
  const std::vector<ops::TokenCount>& counts() const { return counts_; }

 private:
  size_t seen_ = 0;
  std::unordered_map<int32_t, size_t> index_;
  std::vector<ops::TokenCount> counts_;
};

// What one projected row is for: to sample a token, or to score one that is given.
struct RowInfo {
  size_t item = 0;           // in the plan
  int64_t position = 0;      // of the token that the row predicts
  bool samples = false;      // else it scores `scored`, or the prompt token there
  int32_t pending_row = -1;  // row of the sequence's unread token in the previous step's tokens
  int32_t scored = -1;       // one of Pooling::tokens
};

// A token whose state is asked for.
struct StateInfo {
  size_t item = 0;       // in the plan
  int64_t position = 0;  // of the token
};

// A plan as the model and the sampler want it.
struct Batch {
  std::shared_ptr<const std::vector<int32_t>>
      ids;  // [T]; -1 where the token is still on the device
  std::shared_ptr<const std::vector<int32_t>> from;  // [T] row of the previous step's tokens, or -1
  bool feeds_pending = false;                        // any of `from` is >= 0
  bool reads_prompts = false;                        // a token is a prompt's
  int32_t most_logprobs = 0;                         // that a sampled row asks for
  ops::BatchLayoutPtr layout;
  std::vector<RowInfo> rows;      // [R], ascending token rows
  std::vector<StateInfo> states;  // of layout->pooled
};

// Lays the plan's tokens out on one axis and maps them to KV slots. Aborts (QUIRE_CHECK) on any
// position, slot, block or token id out of range: kernels trust the layout. Reads, then replaces,
// each sampling sequence's pending_row.
//
// `tables`: how layers see the block tables, of which each sequence has options.windows.size().
// `pad_to`: at least so many sequences, the rest of them padding, as a recorded step needs it
// (ops/runtime/recorded_step.h): one token each, written nowhere, that sees no key, and a row to
// project that no RowInfo speaks of. For steps of one token and row a sequence, whose layout has
// the sequences' tables themselves (BatchLayout::lent_tables).
Batch build_batch(const StepPlan& plan, const SchedulerOptions& options, int64_t vocab_size,
                  int64_t pad_to = 0, const TableViews& tables = {});

// A step that is all padding: `tokens` of them in sequences of up to `length`, and so many rows.
ops::BatchLayoutPtr padding_layout(int64_t tokens, int64_t length, int64_t rows,
                                   const SchedulerOptions& options);

// The sampler's parameters of one row; `constant` is the sequence's id. `history` is needed only
// for penalties, `mask` only with a grammar.
ops::SampleRow sample_row(const RowInfo& row, const Sequence& sequence, const TokenHistory* history,
                          std::shared_ptr<const std::vector<uint32_t>> mask,
                          const std::vector<int32_t>& eos_token_ids);

// Whether the request's penalties need the token history.
bool needs_history(const SamplingParams& sampling);

}  // namespace quire::engine
