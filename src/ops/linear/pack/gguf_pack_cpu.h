#pragma once
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// Packs k [begin, begin + 128) of the rows of one panel, or as many as there are, as a block of the
// layout (gguf_layout.h). `rows` are as a file has them, any alignment; null: there is no such row.
// What the rows do not have is 0. Returns false if a scale is no finite number: then it is no
// weight.
bool gguf_pack_block_cpu(const QuantisedLayout& layout,
                         const uint8_t* const (&rows)[QuantisedLayout::kPanel], int64_t begin,
                         uint8_t* block);

}  // namespace quire::ops
