#pragma once
#include <cstdint>
#include <vector>

namespace quire::engine {

// Which slots of the recurrent state pools running sequences hold: ids 0 .. num_slots - 1. The slot
// freed last is given out first: a pool costs memory only for slots that were used. A slot freed
// while a launched step still uses it may be given out at once, as a block may: one stream runs
// both steps in order, and a sequence never reads a slot before it has written it.
class StateSlots {
 public:
  explicit StateSlots(int64_t num_slots);

  int32_t allocate();  // there must be a free one
  void release(int32_t slot);

  int64_t num_slots() const { return static_cast<int64_t>(used_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_used() const { return num_slots() - num_free(); }

 private:
  std::vector<int32_t> free_;
  std::vector<uint8_t> used_;
};

}  // namespace quire::engine
