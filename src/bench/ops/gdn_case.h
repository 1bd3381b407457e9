#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "ops/layout/batch_layout.h"

namespace quire::bench {

// A layer of Qwen3.5 or Qwen3-Next; `batch` sequences of `count` new tokens each.
struct GdnCase {
  static constexpr int kKeyHeads = 16;

  int heads, dim, batch, count;

  int key_heads() const { return std::min(kKeyHeads, heads); }
  int width() const { return (2 * key_heads() + heads) * dim; }
  int rows() const { return batch * count; }
  std::string name(const std::string& op) const {
    return op + "/H=" + std::to_string(heads) + "/D=" + std::to_string(dim) +
           (count == 1 ? "/B=" + std::to_string(batch) : "/T=" + std::to_string(count));
  }
};

// Those of both ops that have a state.
std::vector<GdnCase> gdn_cases();

// Sequences that go on, in the slots of `run`: others each time, so that states are met cold.
ops::BatchLayoutPtr gdn_layout(const GdnCase& c, int64_t run, int64_t slots);

}  // namespace quire::bench
