#pragma once
#include <string_view>

#include "ops/rope/rope.h"

namespace quire::ops {

// Throws std::invalid_argument unless the table covers all of the layout's positions.
void check_positions(std::string_view op, const BatchLayout& layout, const RopeTable& table);

}  // namespace quire::ops
