#include "engine/batch_builder.h"

#include <algorithm>
#include <map>
#include <span>

#include "base/check.h"

namespace quire::engine {
namespace {

// Whether all are in [0, count). In a step of many sequences there are ten thousands, so they are
// looked at side by side.
bool are_blocks(std::span<const int32_t> ids, int64_t count) {
  constexpr size_t kAtOnce = 16;
  const auto last = static_cast<uint32_t>(count - 1);
  const auto sign_if_outside = [last](int32_t id) {
    return static_cast<uint32_t>(id) | (last - static_cast<uint32_t>(id));
  };
  uint32_t outside[kAtOnce] = {};
  size_t i = 0;
  for (; i + kAtOnce <= ids.size(); i += kAtOnce)
    for (size_t j = 0; j < kAtOnce; ++j) outside[j] |= sign_if_outside(ids[i + j]);
  for (; i < ids.size(); ++i) outside[0] |= sign_if_outside(ids[i]);
  uint32_t any = 0;
  for (const uint32_t one : outside) any |= one;
  return any >> 31 == 0;
}

// A block table's part of a layout, as some layers see it.
struct Places {
  TableView view;
  std::vector<int64_t> slot_mapping, block_offsets = {0};
  std::vector<int32_t> blocks;

  // That of the scheduler's block.
  int32_t block(int32_t id) const { return id < 0 ? id : id * view.parts + view.part; }

  // The scheduler's blocks, as a whole: in a step of many sequences there are ten thousands.
  void append(std::span<const int32_t> ids) {
    const size_t first = blocks.size();
    blocks.insert(blocks.end(), ids.begin(), ids.end());
    if (view.parts == 1 && view.part == 0) return;
    for (int32_t& id : std::span(blocks).subspan(first)) id = block(id);
  }

  void move_to(ops::BatchLayout& layout) {
    layout.slot_mapping = std::move(slot_mapping);
    layout.block_offsets = std::move(block_offsets);
    layout.blocks = std::move(blocks);
  }
};

// The layout under construction; appends one item at a time.
struct Builder {
  const SchedulerOptions& options;
  int64_t vocab_size;
  std::vector<Places> tables;
  std::vector<int32_t> ids, from;
  ops::BatchLayout layout;
  std::vector<RowInfo> rows;
  std::vector<StateInfo> states;
  std::vector<int32_t> state_rows;
  std::map<int32_t, std::vector<int32_t>> adapter_rows;
  bool feeds_pending = false, reads_prompts = false;
  bool lends_tables = false;
  int32_t most_logprobs = 0;

  void reserve(const StepPlan& plan, int64_t pad_to) {
    const size_t sequences = std::max(plan.items.size(), static_cast<size_t>(pad_to));
    const size_t tokens = std::max(static_cast<size_t>(plan.num_tokens), sequences);
    size_t blocks = 0;
    if (!lends_tables)
      for (const StepItem& item : plan.items) blocks += item.sequence->tables[0].blocks.size();
    for (std::vector<int32_t>* list : {&ids, &from, &layout.positions}) list->reserve(tokens);
    for (std::vector<int32_t>* list : {&layout.rows, &layout.seq_lens, &layout.cu_seqlens})
      list->reserve(sequences + 1);
    for (Places& table : tables) {
      table.slot_mapping.reserve(tokens);
      table.block_offsets.reserve(sequences + 1);
      table.blocks.reserve(blocks);
    }
    rows.reserve(sequences);
    if (lends_tables) layout.lent_tables.reserve(sequences);
  }

  static const BlockTable& table_of(const Sequence& sequence, const Places& places) {
    return sequence.tables[static_cast<size_t>(places.view.table)];
  }

  void append_token(const Sequence& sequence, int64_t position) {
    const auto known = static_cast<int64_t>(sequence.tokens.size());
    int32_t id = -1, row = -1;
    if (position < known) {
      id = sequence.tokens[position];
      QUIRE_CHECK(id >= 0 && id < vocab_size) << "token id " << id;
    } else {
      row = sequence.pending_row;
      QUIRE_CHECK(position == known && row >= 0) << "position " << position << " of " << known;
      feeds_pending = true;
    }
    ids.push_back(id);
    from.push_back(row);
    QUIRE_CHECK(position < options.max_model_len);
    layout.positions.push_back(static_cast<int32_t>(position));
    const int64_t block = position / options.block_size;
    QUIRE_CHECK(block < sequence.table_len());
    for (Places& places : tables) {
      const int64_t id = places.block(table_of(sequence, places).blocks[block]);
      const int64_t slot = id * options.block_size + position % options.block_size;
      // Shared: already there.
      places.slot_mapping.push_back(position < sequence.shared_len ? -1 : slot);
    }
  }

  // The blocks of an item's tokens. What none of them sees may have been given back.
  void append_blocks(const StepItem& item, Places& places) {
    const BlockTable& own = table_of(*item.sequence, places);
    const int64_t window = options.windows[static_cast<size_t>(places.view.table)];
    const int64_t end = item.start + item.num_tokens;
    const int64_t num_blocks = (end + options.block_size - 1) / options.block_size;
    QUIRE_CHECK(num_blocks <= static_cast<int64_t>(own.blocks.size()));
    QUIRE_CHECK(own.given_back == 0 ||
                (window >= 0 && own.given_back * options.block_size <= item.start - window))
        << own.given_back << " blocks are given back of a sequence at " << item.start;
    const auto table = std::span(own.blocks).first(static_cast<size_t>(num_blocks));
    // Of an answer all but the last were looked at in earlier steps.
    const int64_t known = lends_tables && item.start > item.sequence->prompt_len
                              ? std::max(own.given_back, num_blocks - 1)
                              : own.given_back;
    QUIRE_CHECK(are_blocks(table.subspan(static_cast<size_t>(known)), options.num_blocks))
        << "request " << item.sequence->id << " has a block that is none of the pool's "
        << options.num_blocks;
    if (lends_tables) {
      layout.lent_tables.push_back(
          {.blocks = table.data(), .count = num_blocks, .id = item.sequence->table_id});
      return;
    }
    places.append(table);
    places.block_offsets.push_back(static_cast<int64_t>(places.blocks.size()));
  }

  void append_state_slot(const Sequence& sequence) {
    if (options.num_state_slots == 0) return;
    const int32_t slot = sequence.state_slot;
    QUIRE_CHECK(slot >= 0 && slot < options.num_state_slots) << "state slot " << slot;
    layout.state_slots.push_back(slot);
  }

  void append_rows(const StepPlan& plan, size_t index, int64_t first_row) {
    const StepItem& item = plan.items[index];
    Sequence& sequence = *item.sequence;
    const bool scores = sequence.facts.prompt_logprobs >= 0;
    for (int64_t j = 0; j < item.num_tokens; ++j) {
      const int64_t next = item.start + j + 1;
      const bool samples = item.samples && j == item.num_tokens - 1;
      if (!samples && !(scores && next < sequence.prompt_len)) continue;
      rows.push_back({.item = index,
                      .position = next,
                      .samples = samples,
                      .pending_row = sequence.pending_row});
      layout.rows.push_back(static_cast<int32_t>(first_row + j));
    }
    most_logprobs = std::max(most_logprobs, sequence.facts.logprobs);
    if (item.samples) sequence.pending_row = static_cast<int32_t>(rows.size()) - 1;
  }

  // A request that pools samples nothing.
  void append_pooled(const StepPlan& plan, size_t index, int64_t first_row) {
    const StepItem& item = plan.items[index];
    const Pooling& pooling = *item.sequence->request.pooling;
    const auto last = static_cast<int32_t>(first_row + item.num_tokens - 1);
    if (pooling.kind == Pooling::Kind::kTokenScores) {
      for (size_t i = 0; item.samples && i < pooling.tokens.size(); ++i) {
        rows.push_back(
            {.item = index, .position = item.start + item.num_tokens, .scored = pooling.tokens[i]});
        layout.rows.push_back(last);
      }
      return;
    }
    for (int64_t j = 0; j < item.num_tokens; ++j) {
      const bool is_last = item.samples && j == item.num_tokens - 1;
      if (pooling.kind == Pooling::Kind::kLast && !is_last) continue;
      states.push_back({.item = index, .position = item.start + j});
      state_rows.push_back(static_cast<int32_t>(first_row + j));
    }
  }

  void append(const StepPlan& plan, size_t index) {
    const StepItem& item = plan.items[index];
    const Sequence& sequence = *item.sequence;
    const auto first_row = static_cast<int64_t>(ids.size());
    for (int64_t j = 0; j < item.num_tokens; ++j) append_token(sequence, item.start + j);
    reads_prompts |= item.start < sequence.prompt_len;
    for (Places& places : tables) append_blocks(item, places);
    append_state_slot(sequence);
    if (const int32_t adapter = sequence.facts.adapter; adapter >= 0)
      for (int64_t j = 0; j < item.num_tokens; ++j)
        adapter_rows[adapter].push_back(static_cast<int32_t>(first_row + j));
    layout.seq_lens.push_back(static_cast<int32_t>(item.start + item.num_tokens));
    layout.cu_seqlens.push_back(static_cast<int32_t>(ids.size()));
    if (sequence.facts.pools) return append_pooled(plan, index, first_row);
    append_rows(plan, index, first_row);
  }

  void append_padding() {
    layout.rows.push_back(static_cast<int32_t>(ids.size()));
    ids.push_back(0);
    from.push_back(-1);
    layout.positions.push_back(0);
    if (options.num_state_slots > 0) layout.state_slots.push_back(-1);
    layout.seq_lens.push_back(0);
    layout.cu_seqlens.push_back(static_cast<int32_t>(ids.size()));
    if (lends_tables) layout.lent_tables.emplace_back();
    for (Places& table : tables) {
      table.slot_mapping.push_back(-1);
      table.block_offsets.push_back(static_cast<int64_t>(table.blocks.size()));
    }
  }

  // With the first table, and layouts of the other ones beside it.
  void move_tables(std::shared_ptr<const std::vector<int32_t>> of_layer) {
    for (size_t t = 1; t < tables.size(); ++t) {
      auto other = std::make_shared<ops::BatchLayout>();
      other->num_tokens = layout.num_tokens;
      other->num_sequences = layout.num_sequences;
      other->block_size = layout.block_size;
      other->positions = layout.positions;
      other->cu_seqlens = layout.cu_seqlens;
      other->seq_lens = layout.seq_lens;
      tables[t].move_to(*other);
      layout.other_tables.push_back(std::move(other));
    }
    tables[0].move_to(layout);
    layout.table_of_layer = std::move(of_layer);
  }
};

}  // namespace

void TokenHistory::update(const std::vector<int32_t>& tokens, int64_t prompt_len) {
  for (; seen_ < tokens.size(); ++seen_) {
    const auto [it, is_new] = index_.try_emplace(tokens[seen_], counts_.size());
    if (is_new) counts_.push_back({.token = tokens[seen_]});
    ops::TokenCount& count = counts_[it->second];
    if (static_cast<int64_t>(seen_) < prompt_len) {
      count.in_prompt = true;
    } else {
      ++count.in_output;
    }
  }
}

Batch build_batch(const StepPlan& plan, const SchedulerOptions& options, int64_t vocab_size,
                  int64_t pad_to, const TableViews& tables) {
  Builder builder{.options = options,
                  .vocab_size = vocab_size,
                  .tables = {},
                  .ids = {},
                  .from = {},
                  .layout = {},
                  .rows = {},
                  .states = {},
                  .state_rows = {},
                  .adapter_rows = {}};
  for (const TableView& view : tables.views) builder.tables.emplace_back().view = view;
  builder.lends_tables = pad_to > 0;
  QUIRE_CHECK(pad_to == 0 || (builder.tables.size() == 1 && tables.views[0].parts == 1))
      << "no device with several block tables records steps";
  builder.reserve(plan, pad_to);
  builder.layout.cu_seqlens.push_back(0);
  for (size_t i = 0; i < plan.items.size(); ++i) builder.append(plan, i);
  ops::BatchLayout& layout = builder.layout;
  QUIRE_CHECK(static_cast<int64_t>(builder.ids.size()) == plan.num_tokens);
  while (static_cast<int64_t>(layout.seq_lens.size()) < pad_to) builder.append_padding();
  layout.num_tokens = static_cast<int64_t>(builder.ids.size());
  layout.num_sequences = static_cast<int64_t>(layout.seq_lens.size());
  layout.block_size = options.block_size;
  builder.move_tables(tables.of_layer);
  if (!builder.adapter_rows.empty()) {
    auto adapters = std::make_shared<ops::AdapterRows>();
    for (auto& [adapter, rows] : builder.adapter_rows)
      adapters->groups.push_back({.adapter = adapter, .rows = std::move(rows)});
    layout.adapters = std::move(adapters);
  }
  if (!builder.state_rows.empty()) {
    auto pooled = std::make_shared<ops::BatchLayout>();
    pooled->num_tokens = layout.num_tokens;
    pooled->rows = std::move(builder.state_rows);
    layout.pooled = std::move(pooled);
  }
  return {.ids = std::make_shared<const std::vector<int32_t>>(std::move(builder.ids)),
          .from = std::make_shared<const std::vector<int32_t>>(std::move(builder.from)),
          .feeds_pending = builder.feeds_pending,
          .reads_prompts = builder.reads_prompts,
          .most_logprobs = builder.most_logprobs,
          .layout = std::make_shared<const ops::BatchLayout>(std::move(layout)),
          .rows = std::move(builder.rows),
          .states = std::move(builder.states)};
}

ops::BatchLayoutPtr padding_layout(int64_t tokens, int64_t length, int64_t rows,
                                   const SchedulerOptions& options) {
  QUIRE_CHECK(options.windows.size() == 1) << "no device with several block tables asks for this";
  auto layout = std::make_shared<ops::BatchLayout>();
  layout->num_tokens = tokens;
  layout->num_sequences = (tokens + length - 1) / length;
  layout->block_size = options.block_size;
  const auto sequences = static_cast<size_t>(layout->num_sequences);
  for (int64_t t = 0; t < tokens; ++t)
    layout->positions.push_back(static_cast<int32_t>(t % length));
  layout->slot_mapping.assign(static_cast<size_t>(tokens), -1);
  layout->seq_lens.resize(sequences);
  layout->block_offsets.resize(sequences + 1);
  if (options.num_state_slots > 0) layout->state_slots.assign(sequences, ops::kNoStateSlot);
  for (int64_t s = 0; s <= layout->num_sequences; ++s)
    layout->cu_seqlens.push_back(static_cast<int32_t>(std::min(s * length, tokens)));
  for (int32_t r = 0; r < rows; ++r) layout->rows.push_back(r);
  return layout;
}

bool needs_history(const SamplingParams& sampling) {
  return sampling.presence_penalty != 0.0f || sampling.frequency_penalty != 0.0f ||
         sampling.repetition_penalty != 1.0f;
}

namespace {

using Mask = std::shared_ptr<const std::vector<uint32_t>>;

// What both allow; null: everything.
Mask both_allow(Mask a, Mask b) {
  if (!a || !b) return a ? std::move(a) : std::move(b);
  auto both = std::make_shared<std::vector<uint32_t>>(*a);
  for (size_t i = 0; i < both->size(); ++i) (*both)[i] &= (*b)[i];
  return both;
}

// Whether the token before the row's is still on the device.
bool follows_pending(const RowInfo& row, const Sequence& sequence) {
  return row.position > static_cast<int64_t>(sequence.tokens.size());
}

void ban_bad_words(const RowInfo& row, const Sequence& sequence, ops::SampleRow& out) {
  const std::span produced = std::span(sequence.tokens).subspan(sequence.prompt_len);
  if (follows_pending(row, sequence)) {
    sequence.request.sampling.bad_words->ban_after_pending(produced, out.banned_after);
    out.pending_row = row.pending_row;
  } else {
    sequence.request.sampling.bad_words->ban(produced, out.banned);
  }
}

}  // namespace

ops::SampleRow sample_row(const RowInfo& row, const Sequence& sequence, const TokenHistory* history,
                          std::shared_ptr<const std::vector<uint32_t>> mask,
                          const std::vector<int32_t>& eos_token_ids) {
  const SamplingParams& sampling = sequence.request.sampling;
  ops::SampleRow result;
  result.position = row.position;
  if (!row.samples) {
    const bool is_given = row.scored >= 0;
    result.forced_token = is_given ? row.scored : sequence.tokens[row.position];
    result.num_top_logprobs = is_given ? 0 : sampling.prompt_logprobs;
    return result;
  }
  result.temperature = sampling.temperature;
  result.top_k = sampling.top_k;
  result.top_p = sampling.top_p;
  result.min_p = sampling.min_p;
  result.seed = sequence.seed;
  result.logit_bias = sampling.logit_bias;
  result.num_top_logprobs = sampling.logprobs;
  const bool mask_changes = mask != nullptr;
  result.mask = both_allow(std::move(mask), sampling.allowed_tokens);
  if (row.position - sequence.prompt_len < sampling.min_tokens) {
    result.banned = sampling.stop_token_ids;
    result.banned.insert(result.banned.end(), eos_token_ids.begin(), eos_token_ids.end());
  }
  const bool is_constant =
      result.banned.empty() && !mask_changes && !sampling.bad_words && !history;
  if (is_constant) result.constant = sequence.id;
  if (sampling.bad_words) ban_bad_words(row, sequence, result);
  if (history) {
    result.repetition_penalty = sampling.repetition_penalty;
    result.presence_penalty = sampling.presence_penalty;
    result.frequency_penalty = sampling.frequency_penalty;
    result.history = history->counts();
    if (follows_pending(row, sequence)) result.pending_row = row.pending_row;
  }
  return result;
}

}  // namespace quire::engine
