// Recurrent state: which states are saved where, and where a cached prefix can be continued from.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "engine/scheduler.h"

namespace quire::engine {

// -- before a sequence starts --------------------------------------------------------------------

// How many tokens of the cached prefix hits_ need not be fed again: up to its last checkpoint, but
// never all `length` tokens, as the last one is fed for its logits.
int64_t Scheduler::restorable(int64_t length) const {
  const int64_t size = options_.block_size;
  auto i = std::min(static_cast<int64_t>(hits_.size()), (length - 1) / size);
  while (i > 0 && checkpoints_.at(cache_.block(hits_[i - 1], 0)) < 0) --i;
  return i * size;
}

// Its slot, filled from the checkpoint at kv_len if that is not 0 (then the kernels start from
// zeros), and the places where saving its state pays.
void Scheduler::start_state(Sequence& sequence, StepPlan& plan) {
  sequence.state_slot = state_slots_.allocate();
  sequence.checkpoints.decode_block = -1;
  place_checkpoints(sequence);
  if (sequence.kv_len == 0) return;
  const int32_t block = sequence.tables[0].blocks[sequence.kv_len / options_.block_size - 1];
  QUIRE_CHECK(checkpoints_.at(block) >= 0) << "block " << block << " has no checkpoint";
  checkpoints_.touch(block);
  plan.restores.push_back({.from = checkpoints_.at(block), .to = sequence.state_slot});
  ++stats_.state_restores;
}

// Beside every interval: where another prompt has left this one's way (the cached blocks go on
// beyond the restored state, so others do share them), and the last block edge before the tokens
// that make it different from the next turn of its conversation. Each ends a chunk of its own,
// which must save more tokens than that costs.
void Scheduler::place_checkpoints(Sequence& sequence) const {
  SequenceCheckpoints& places = sequence.checkpoints;
  places.branch = places.end = 0;
  const int64_t size = options_.block_size, start = sequence.kv_len;
  const auto length = static_cast<int64_t>(sequence.tokens.size());
  const auto pays = [&](int64_t edge, int64_t before) {
    return edge > before && edge - before >= options_.min_checkpoint_tokens;
  };
  if (sequence.shared_len < length && pays(sequence.shared_len, start))
    places.branch = sequence.shared_len;
  const int64_t end = (length - 1) / size * size, interval = checkpoint_interval();
  int64_t before = std::max(start, places.branch);
  if (interval > 0) before = std::max(before, end / interval * interval);
  if (pays(end, before)) places.end = end;
}

// -- while it runs -------------------------------------------------------------------------------

// In tokens, a multiple of the block size; 0: none.
int64_t Scheduler::checkpoint_interval() const {
  return blocks_.blocks_for(options_.state_checkpoint_interval) * options_.block_size;
}

// The first place after `position` where the sequence's state is to be saved.
int64_t Scheduler::next_checkpoint(const Sequence& sequence, int64_t position) const {
  int64_t next = std::numeric_limits<int64_t>::max();
  if (checkpoints_.num_slots() == 0) return next;
  for (const int64_t edge : {sequence.checkpoints.branch, sequence.checkpoints.end})
    if (edge > position) next = std::min(next, edge);
  if (const int64_t interval = checkpoint_interval(); interval > 0)
    next = std::min(next, (position / interval + 1) * interval);
  return next;
}

// A chunk of a prompt ends where the state is to be saved. (Its arithmetic is token by token, so
// that no cut changes a bit.)
int64_t Scheduler::cut_chunk(const Sequence& sequence, int64_t num_tokens) const {
  return std::min(num_tokens, next_checkpoint(sequence, sequence.kv_len) - sequence.kv_len);
}

// For the complete plan: takes a slot for each item that ends at a checkpoint.
void Scheduler::plan_saves(StepPlan& plan) {
  if (checkpoints_.num_slots() == 0) return;
  const int64_t size = options_.block_size;
  for (const StepItem& item : plan.items) {
    Sequence& sequence = *item.sequence;
    const int64_t end = item.start + item.num_tokens;
    if (next_checkpoint(sequence, end - 1) != end) continue;
    const int64_t index = end / size - 1;
    const bool registered = index < sequence.registered_blocks;
    // A block of the same contents is in the cache, or this one with its checkpoint.
    if (registered && (!cache_.contains(sequence.tables[0].blocks[index]) ||
                       checkpoints_.at(sequence.tables[0].blocks[index]) >= 0))
      continue;
    const int32_t slot = checkpoints_.take();
    if (slot < 0) continue;
    plan.saves.push_back({.from = sequence.state_slot, .to = slot});
    ++stats_.state_saves;
    sequence.checkpoints.held.push_back({.position = end, .slot = slot});
    if (registered) attach_checkpoints(sequence);
  }
}

// Hands the saved states whose blocks are registered by now to the prefix cache.
void Scheduler::attach_checkpoints(Sequence& sequence) {
  std::erase_if(sequence.checkpoints.held, [&](const HeldCheckpoint& held) {
    const int64_t index = held.position / options_.block_size - 1;
    if (index >= sequence.registered_blocks) return false;
    const int32_t block = sequence.tables[0].blocks[index];
    if (!cache_.contains(block) || checkpoints_.at(block) >= 0) {
      checkpoints_.give_back(held.slot);  // another sequence was first with the same prefix
      return true;
    }
    checkpoints_.attach(held.slot, block);
    if (held.position <= sequence.prompt_len) return true;
    // Of an answer the last one is enough: who continues it, continues all of it.
    int32_t& last = sequence.checkpoints.decode_block;
    if (last >= 0) checkpoints_.drop(last);
    last = block;
    return true;
  });
}

// When it stops running. The launched step that uses the slot needs no waiting for: whoever gets
// the slot next uses it in a later step of the same stream.
void Scheduler::release_state(Sequence& sequence) {
  if (sequence.state_slot >= 0) state_slots_.release(sequence.state_slot);
  sequence.state_slot = -1;
  for (const HeldCheckpoint& held : sequence.checkpoints.held) checkpoints_.give_back(held.slot);
  sequence.checkpoints.held.clear();
}

// The last place within the `common` tokens where another sequence of this plan will have its state
// saved; 0: none. Only places that it has not reached yet: what was saved earlier has been found
// already.
int64_t Scheduler::coming_checkpoint(const StepItem& chunk, int64_t common) const {
  int64_t best = 0;
  for (int64_t edge = next_checkpoint(*chunk.sequence, chunk.start); edge <= common;
       edge = next_checkpoint(*chunk.sequence, edge))
    best = edge;
  return best;
}

// -- integrity -----------------------------------------------------------------------------------

// Running sequences have a slot each, nobody else has any; checkpoints belong to cached blocks or
// to running sequences.
void Scheduler::check_state_slots() const {
  checkpoints_.check_integrity();
  std::vector<bool> taken(options_.num_state_slots, false);
  int64_t slots = 0, held = 0;
  for (const SequencePtr& sequence : running_) {
    held += static_cast<int64_t>(sequence->checkpoints.held.size());
    const int32_t slot = sequence->state_slot;
    QUIRE_CHECK((slot >= 0) == has_state()) << "request " << sequence->id << ", slot " << slot;
    if (!has_state()) continue;
    QUIRE_CHECK(slot < options_.num_state_slots && !taken[slot]) << "state slot " << slot;
    taken[slot] = true;
    ++slots;
  }
  QUIRE_CHECK(slots == state_slots_.num_used()) << slots << " of " << state_slots_.num_used();
  QUIRE_CHECK(held == checkpoints_.num_held()) << held << " of " << checkpoints_.num_held();
  int64_t attached = 0;
  for (int64_t b = 0; b < options_.num_blocks; ++b) {
    const auto block = static_cast<int32_t>(b);
    if (checkpoints_.at(block) < 0) continue;
    ++attached;
    QUIRE_CHECK(cache_.contains(block)) << "a checkpoint of block " << b << ", which is not cached";
  }
  QUIRE_CHECK(attached == checkpoints_.num_attached()) << attached;
}

}  // namespace quire::engine
