#include "models/blocks/embedding_table.h"

#include "ops/embedding/embedding.h"

namespace quire::models {

EmbeddingTable::EmbeddingTable(const std::string& name, int64_t rows, int64_t width,
                               mx::Dtype dtype, WeightLoader& weights)
    : dtype_(dtype) {
  if (weights.is_quantised(name)) {
    packed_ = weights.linear(name, "", rows, width).weight;
  } else {
    stored_ = weights.stored_matrix(name, rows, width);
  }
}

mx::array EmbeddingTable::look_up(const ops::Context& context, const mx::array& ids) const {
  if (packed_) return ops::embedding(context, ids, *packed_);
  return ops::embedding(context, ids, stored_.rows, dtype_, stored_.memory);
}

float rounded_to(mx::Dtype dtype, float value) {
  return mx::astype(mx::astype(mx::array(value), dtype), mx::float32).item<float>();
}

}  // namespace quire::models
