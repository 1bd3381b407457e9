#pragma once
#include <optional>
#include <string>

#include "models/weights.h"
#include "ops/runtime/context.h"

namespace quire::models {

// A matrix that rows are looked up in and nothing else: as the checkpoint stores it, or packed if
// it is quantised.
class EmbeddingTable {
 public:
  EmbeddingTable(const std::string& name, int64_t rows, int64_t width, mx::Dtype dtype,
                 WeightLoader& weights);

  // ids [T] int32, each in [0, rows). Returns [T, width] in the model's dtype.
  mx::array look_up(const ops::Context& context, const mx::array& ids) const;

 private:
  mx::Dtype dtype_;
  StoredMatrix stored_;
  std::optional<ops::PackedMatrix> packed_;
};

// A multiplier as a tensor of the dtype holds it.
float rounded_to(mx::Dtype dtype, float value);

}  // namespace quire::models
