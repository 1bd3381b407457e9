#pragma once
#include <string_view>

#include "ops/rope/rope.h"

namespace quire::ops {

// The table's rows, of which those of the layout's positions are computed. Throws
// std::invalid_argument unless it covers all of them.
const float* rows_of_positions(std::string_view op, const BatchLayout& layout,
                               const RopeTable& table);

}  // namespace quire::ops
