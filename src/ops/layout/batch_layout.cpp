#include "ops/layout/batch_layout.h"

namespace quire::ops {

BatchLayoutPtr with_own_tables(const BatchLayout& layout) {
  auto own = std::make_shared<BatchLayout>(layout);
  if (layout.lent_tables.empty()) return own;
  own->lent_tables.clear();
  own->blocks.clear();
  own->block_offsets = {0};
  for (const LentTable& table : layout.lent_tables) {
    own->blocks.insert(own->blocks.end(), table.blocks, table.blocks + table.count);
    own->block_offsets.push_back(static_cast<int64_t>(own->blocks.size()));
  }
  return own;
}

}  // namespace quire::ops
