#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/expert_places.h"
#include "formats/quantization.h"
#include "formats/quantize_checkpoint.h"
#include "formats/safetensors_writer.h"

namespace quire::formats {

// What the target holds for one tensor of the source, or for the same weight of all experts of a
// layer, which mlx-lm stores as one ("switch_mlp.up_proj.weight" [E, n, k]).
struct QuantizeItem {
  std::string layer;                 // "model.layers.0.mlp.up_proj", if it is quantised
  QuantisedFormat format;            // likewise
  std::vector<MatrixView> matrices;  // the rows, in order
  std::vector<TensorPlan> plans;     // the tensor itself, or values, scales and (affine) biases
  bool quantised() const { return !layer.empty(); }
  uint64_t source_bytes() const;
  uint64_t bytes() const;
  int64_t groups() const;  // that share a scale; if it is quantised
};

// Every tensor of the source once, in an order that keeps layers together; experts where mlx-lm
// stores them, quantised or not. Routers and the gates of shared experts get affine 8 bits whatever
// the rest gets, as in mlx-lm: few weights that decide much. Counts into the report.
std::vector<QuantizeItem> plan_quantization(const Checkpoint& source, const QuantisedFormat& format,
                                            QuantizeReport& report);

}  // namespace quire::formats
