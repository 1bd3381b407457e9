#include "engine/state_slots.h"

#include <limits>

#include "base/check.h"

namespace quire::engine {

StateSlots::StateSlots(int64_t num_slots) {
  QUIRE_CHECK(num_slots >= 0 && num_slots < std::numeric_limits<int32_t>::max()) << num_slots;
  used_.assign(num_slots, 0);
  free_.reserve(num_slots);
  for (int64_t slot = num_slots; slot-- > 0;) free_.push_back(static_cast<int32_t>(slot));
}

int32_t StateSlots::allocate() {
  QUIRE_CHECK(!free_.empty()) << "all " << num_slots() << " state slots are in use";
  const int32_t slot = free_.back();
  free_.pop_back();
  used_[slot] = 1;
  return slot;
}

void StateSlots::release(int32_t slot) {
  QUIRE_CHECK(slot >= 0 && slot < num_slots() && used_[slot]) << "state slot " << slot;
  used_[slot] = 0;
  free_.push_back(slot);
}

}  // namespace quire::engine
