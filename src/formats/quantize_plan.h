#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/quantization.h"
#include "formats/quantize_checkpoint.h"
#include "formats/safetensors_writer.h"

namespace quire::formats {

// Rows [begin, begin + count) of a tensor whose last axis has the columns.
struct RowBlock {
  const RawTensor* tensor = nullptr;
  int64_t begin = 0, count = 0;
  uint64_t row_bytes() const;
  uint64_t bytes() const { return static_cast<uint64_t>(count) * row_bytes(); }
  // Reads its rows [first, first + out.size() / row_bytes()). Throws LoadError.
  void read(int64_t first, std::span<std::byte> out, ThreadPool& pool) const;
};

// What the target holds for one tensor of the source, or for the same weight of all experts of a
// layer, which mlx-lm stores as one ("switch_mlp.up_proj.weight" [E, n, k]).
struct QuantizeItem {
  std::string layer;              // "model.layers.0.mlp.up_proj", if it is quantised
  QuantisedFormat format;         // likewise
  std::vector<RowBlock> blocks;   // the rows, in order; a tensor that is kept is one block
  std::vector<TensorPlan> plans;  // the tensor itself, or values, scales and (affine) biases
  bool quantised() const { return !layer.empty(); }
  uint64_t source_bytes() const;
  uint64_t bytes() const;
  int64_t groups() const;  // that share a scale; if it is quantised
};

// Every tensor of the source once, in an order that keeps layers together. Routers and the gates of
// shared experts get affine 8 bits whatever the rest gets, as in mlx-lm: few weights that decide
// much. Counts into the report.
std::vector<QuantizeItem> plan_quantization(const Checkpoint& source, const QuantisedFormat& format,
                                            QuantizeReport& report);

}  // namespace quire::formats
