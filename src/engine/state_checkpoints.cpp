#include "engine/state_checkpoints.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/check.h"

namespace quire::engine {

StateCheckpoints::StateCheckpoints(int64_t num_slots, int64_t first_slot, int64_t num_blocks)
    : first_slot_(first_slot) {
  QUIRE_CHECK(num_slots >= 0 && first_slot >= 0 &&
              first_slot + num_slots < std::numeric_limits<int32_t>::max())
      << num_slots;
  slots_.resize(num_slots + 1);
  slots_.back().next = slots_.back().prev = static_cast<int32_t>(num_slots);
  slot_of_block_.assign(num_blocks, -1);
  free_.reserve(num_slots);
  for (int64_t i = num_slots; i-- > 0;) free_.push_back(static_cast<int32_t>(first_slot + i));
}

int32_t StateCheckpoints::take() {
  int32_t id = -1;
  const auto free = std::find_if(free_.rbegin(), free_.rend(),
                                 [this](int32_t one) { return slot(one).saved_by != plan_; });
  if (free != free_.rend()) {
    id = *free;
    free_.erase(std::next(free).base());
  } else {
    const int32_t oldest = slots_.back().next;
    if (oldest == num_slots() || slots_[oldest].saved_by == plan_) return -1;
    slot_of_block_[slots_[oldest].block] = -1;
    unlink(oldest);
    id = static_cast<int32_t>(first_slot_ + oldest);
  }
  QUIRE_CHECK(slot(id).saved_by != plan_) << "state slot " << id << " is saved to twice";
  slot(id).state = State::kHeld;
  slot(id).block = -1;
  slot(id).saved_by = plan_;
  return id;
}

void StateCheckpoints::attach(int32_t id, int32_t block) {
  QUIRE_CHECK(slot(id).state == State::kHeld) << "state slot " << id;
  QUIRE_CHECK(at(block) < 0) << "block " << block << " has checkpoint " << at(block);
  slot(id).state = State::kAttached;
  slot(id).block = block;
  slot_of_block_[block] = id;
  link(static_cast<int32_t>(id - first_slot_));
}

void StateCheckpoints::give_back(int32_t id) {
  QUIRE_CHECK(slot(id).state == State::kHeld) << "state slot " << id;
  slot(id).state = State::kFree;
  free_.push_back(id);
}

void StateCheckpoints::touch(int32_t block) {
  const auto index = static_cast<int32_t>(at(block) - first_slot_);
  QUIRE_CHECK(at(block) >= 0) << "block " << block << " has no checkpoint";
  unlink(index);
  link(index);
}

void StateCheckpoints::drop(int32_t block) {
  const int32_t id = at(block);
  if (id < 0) return;
  slot_of_block_[block] = -1;
  unlink(static_cast<int32_t>(id - first_slot_));
  slot(id).state = State::kFree;
  slot(id).block = -1;
  free_.push_back(id);
}

void StateCheckpoints::clear() {
  while (slots_.back().next != num_slots()) drop(slots_[slots_.back().next].block);
}

void StateCheckpoints::link(int32_t index) {
  const auto sentinel = static_cast<int32_t>(num_slots());
  const int32_t last = slots_[sentinel].prev;
  slots_[last].next = index;
  slots_[index].prev = last;
  slots_[index].next = sentinel;
  slots_[sentinel].prev = index;
  ++num_attached_;
}

void StateCheckpoints::unlink(int32_t index) {
  slots_[slots_[index].prev].next = slots_[index].next;
  slots_[slots_[index].next].prev = slots_[index].prev;
  --num_attached_;
}

void StateCheckpoints::check_integrity() const {
  std::vector<int64_t> count(3, 0);
  for (int64_t i = 0; i < num_slots(); ++i) {
    const Slot& slot = slots_[i];
    ++count[static_cast<size_t>(slot.state)];
    QUIRE_CHECK((slot.state == State::kAttached) == (slot.block >= 0)) << "state slot " << i;
    QUIRE_CHECK(slot.block < 0 || at(slot.block) == first_slot_ + i) << "block " << slot.block;
  }
  QUIRE_CHECK(count[0] == num_free() && count[1] == num_held() && count[2] == num_attached())
      << count[0] << " free, " << count[1] << " held, " << count[2] << " attached";
  int64_t listed = 0;
  for (int32_t i = slots_.back().next; i != num_slots(); i = slots_[i].next, ++listed) {
    QUIRE_CHECK(listed < num_attached_) << "the list of checkpoints has a loop";
    QUIRE_CHECK(slots_[i].state == State::kAttached) << "state slot " << i;
  }
  int64_t mapped = 0;
  for (const int32_t id : slot_of_block_) mapped += id >= 0;
  QUIRE_CHECK(listed == num_attached_ && mapped == num_attached_) << listed << ", " << mapped;
}

}  // namespace quire::engine
