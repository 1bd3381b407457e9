#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/layout/recurrent_state.h"
#include "ops/runtime/context.h"

namespace quire::ops {

// One slot's state goes into another slot.
struct SlotCopy {
  int32_t from = 0, to = 0;
};
using SlotCopies = std::shared_ptr<const std::vector<SlotCopy>>;

// Copies states between slots of one layer's pool, exactly and in place, in one node: the returned
// handles alias the pool that went in, and every later reader must take them. Throws
// std::invalid_argument if a slot is not in the pool, or is written twice, or both read and written
// (the copies have no order).
RecurrentState copy_slots(const Context& context, const RecurrentState& state,
                          const SlotCopies& copies);

}  // namespace quire::ops
