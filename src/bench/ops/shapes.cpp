#include "bench/ops/shapes.h"

namespace quire::bench {

ops::BatchLayoutPtr prompt_layout(int rows) {
  auto layout = std::make_shared<ops::BatchLayout>();
  layout->num_tokens = rows;
  layout->num_sequences = 1;
  layout->block_size = 16;
  for (int i = 0; i < rows; ++i) {
    layout->positions.push_back(i);
    layout->slot_mapping.push_back(i);
  }
  layout->cu_seqlens = {0, rows};
  layout->seq_lens = {rows};
  for (int b = 0; b * 16 < rows; ++b) layout->blocks.push_back(b);
  layout->block_offsets = {0, static_cast<int64_t>(layout->blocks.size())};
  return layout;
}

}  // namespace quire::bench
