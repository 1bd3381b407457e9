#pragma once
#include <cstdint>

#include "ops/linear/gguf/gguf_format.h"

namespace quire::ops {

// A row as MLX would store it: codes [k / 2], scales and of q4_1 biases, a float16 or a byte for
// each group.
struct MlxRow {
  uint8_t* values = nullptr;
  uint8_t* scales = nullptr;
  uint8_t* biases = nullptr;
};

// Converts a row of blocks of q4_1, mxfp4 or nvfp4. Returns false for a float16 that is no finite
// number; scales of one byte are checked where block floats are packed.
bool gguf_row_as_mlx_cpu(GgufFormat format, const uint8_t* blocks, int64_t k, const MlxRow& to);

}  // namespace quire::ops
