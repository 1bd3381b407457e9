#pragma once
#include <vector>

#include "ops/linear/cuda/linear_cuda_layout.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// How a GPU stores what the CPU's kernels have in blocks (a format of GGUF, block floats, affine
// values with zero points), for activations of `type`. Narrow codes become wide.
// kNestedNf4 becomes kNf4: a float32 scale of the same value for each group.
CudaWeightLayout cuda_block_layout(const QuantisedLayout& layout, FloatType type);

// Rearranges packed matrices of one layout for a GPU.
class CudaBlockArrangement {
 public:
  CudaBlockArrangement(const QuantisedLayout& from, FloatType type);
  const CudaWeightLayout& layout() const { return to_; }
  // One panel of the matrix at `packed`, into its places in `out`, a whole matrix on the host of
  // layout().bytes(), aligned to 4. Safe to call from several threads.
  void arrange(const void* packed, int64_t panel, void* out) const;

 private:
  // Where a plane's part of a code goes: from a block's byte to a word of its stages.
  struct Move {
    uint16_t byte, word;
    uint8_t from_shift, to_shift, mask;
  };
  void add_moves(int plane, int from_byte, int first_word);

  QuantisedLayout from_;
  CudaWeightLayout to_;
  std::vector<Move> moves_[2];  // of the two stages of a block
};

}  // namespace quire::ops
