#pragma once
#include <vector>

#include "ops/context.h"
#include "ops/kv_cache.h"

namespace quire::ops {

struct BlockCopy {
  int32_t from = 0, to = 0;
};

// Copies whole blocks within a pool, in place and byte for byte, scales included: copy-on-write of
// blocks that sequences share. The returned handles alias the pool that went in, and every later
// reader must take them.
//   copies  in any order: no block may be written twice, or be both read and written
// Throws std::invalid_argument if a block is out of range or the order of the copies would matter.
PagedKv copy_blocks(const Context& context, const PagedKv& kv, std::vector<BlockCopy> copies);

}  // namespace quire::ops
