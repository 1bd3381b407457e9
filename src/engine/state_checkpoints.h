#pragma once
#include <cstdint>
#include <vector>

namespace quire::engine {

// Saved copies of the recurrent state, each at the end of a full KV block that the prefix cache
// knows: a prefix can be continued from the last of its blocks that has one. They live in slots of
// the state pools behind those of running sequences: ids first_slot .. first_slot + num_slots - 1.
// A slot is in exactly one of three states:
//
//   free      nobody wants its contents
//   held      a launched step saves a state there, whose block the prefix cache does not know yet
//             (its last token is still on the device); the sequence will attach it or give it back
//   attached  it is the state at the end of a cached block; taken back, least recently used first
//
// Slots may be read, taken and saved to by consecutive steps without waiting: one stream runs the
// steps in order.
class StateCheckpoints {
 public:
  StateCheckpoints(int64_t num_slots, int64_t first_slot, int64_t num_blocks);

  // From here on saves belong to the next plan: a plan never saves twice to one slot.
  void begin_plan() { ++plan_; }

  // A slot to save to, held by the caller: a free one, else that of the least recently used
  // checkpoint. -1: every slot is held, or is saved to by this plan already.
  int32_t take();
  // The held slot becomes the checkpoint of `block`, which has none.
  void attach(int32_t slot, int32_t block);
  void give_back(int32_t slot);  // a held slot

  // The checkpoint at the end of `block`; -1: none.
  int32_t at(int32_t block) const { return slot_of_block_[block]; }
  // It was just used.
  void touch(int32_t block);
  // The block's contents are given up, or its checkpoint is of no more use. Without one, nothing.
  void drop(int32_t block);
  // All attached ones.
  void clear();

  int64_t num_slots() const { return static_cast<int64_t>(slots_.size()) - 1; }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_attached() const { return num_attached_; }
  int64_t num_held() const { return num_slots() - num_free() - num_attached_; }

  // Aborts unless lists, counts and the map from blocks tell the same story.
  void check_integrity() const;

 private:
  enum class State : uint8_t { kFree, kHeld, kAttached };
  struct Slot {
    State state = State::kFree;
    int32_t block = -1;
    int32_t next = 0, prev = 0;  // of the attached ones
    uint64_t saved_by = 0;       // plan
  };
  Slot& slot(int32_t id) { return slots_[id - first_slot_]; }
  void link(int32_t index);
  void unlink(int32_t index);

  int64_t first_slot_;
  std::vector<Slot> slots_;  // and the sentinel of the attached ones' ring, oldest first
  std::vector<int32_t> free_;
  std::vector<int32_t> slot_of_block_;
  int64_t num_attached_ = 0;
  uint64_t plan_ = 1;
};

}  // namespace quire::engine
