#pragma once
#include "base/json.h"

namespace quire::bench {

struct ComparisonOptions {
  int threads = 0;  // 0: one per physical core
  int64_t rounds = 5;
};

// What kernels gain by how they are called, each way beside the usual one, in turns:
//   a step's keys and values are written in place, or by MLX's functional update, which copies the
//   pool as soon as steps overlap;
//   ten requests go through a gated delta net in one call, or in a loop of one awaited call each.
// Prints median microseconds and the ratio to the usual way, and returns them.
json::array compare_ways(const ComparisonOptions& options);

}  // namespace quire::bench
