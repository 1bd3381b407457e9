#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ops/layout/batch_layout.h"

namespace quire::ops {

// The new tokens of one sequence, as an op with a state per sequence walks them.
struct StateSegment {
  int64_t begin = 0, end = 0;  // token rows; begin < end
  int64_t slot = 0;
  bool is_fresh = false;  // the sequence begins here: the slot's old contents do not count
};

// The sequences that have tokens and a slot, longest first, so that the short ones fill the
// threads' ends. Throws std::invalid_argument if a slot is neither kNoStateSlot nor in [0, slots),
// if two sequences share one, or if the layout has no slots.
std::vector<StateSegment> state_segments(std::string_view op, const BatchLayout& layout,
                                         int64_t slots);

}  // namespace quire::ops
