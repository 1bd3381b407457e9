#pragma once
#include <cstring>
#include <memory>

#include "ops/layout/batch_layout.h"
#include "ops/layout/kv_cache.h"

// Shared by the tests of ops that write KV pools.
namespace quire::ops::testing {

// Tokens at scattered positions below `max_positions`; their slots, in a pool of 512, are distinct,
// and some are negative.
inline BatchLayoutPtr scattered_layout(int tokens, int block_size, int max_positions) {
  auto layout = std::make_shared<BatchLayout>();
  layout->num_tokens = tokens;
  layout->block_size = block_size;
  for (int t = 0; t < tokens; ++t) {
    layout->positions.push_back((t * 37 + 3) % max_positions);
    layout->slot_mapping.push_back(t % 5 == 3 ? -1 : (t * 77 + 11) % 512);  // 77 is odd
  }
  return layout;
}

// The same bytes everywhere, so that slots which nothing writes can be compared.
inline PagedKv filled(PagedKv kv) {
  for (const mx::array& array : kv.arrays())
    std::memset(const_cast<char*>(array.data<char>()), 0x55, array.nbytes());
  return kv;
}

}  // namespace quire::ops::testing
