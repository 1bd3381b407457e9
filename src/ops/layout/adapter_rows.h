#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace quire::ops {

// Which tokens of a step have an adapter (LoRA), and which one.
struct AdapterRows {
  struct Group {
    int32_t adapter = 0;        // an index into LoraWeights
    std::vector<int32_t> rows;  // token rows of the step, ascending; never empty
  };
  std::vector<Group> groups;  // by adapter, ascending; never empty
};

// Null: no token of the step has one.
using AdapterRowsPtr = std::shared_ptr<const AdapterRows>;

}  // namespace quire::ops
