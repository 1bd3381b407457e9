#pragma once
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// Packs k [begin, begin + 128) of one row, or as many as there are, as row `lane` of a block of the
// layout (gguf_layout.h); only what that row has is written, of whole blocks all of it. `from` is
// the row as a file has it, any alignment. Returns false if a scale is no finite number: then it is
// no weight.
bool gguf_pack_row_cpu(const QuantisedLayout& layout, const uint8_t* from, int64_t begin,
                       int64_t lane, uint8_t* block);

}  // namespace quire::ops
