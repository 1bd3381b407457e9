#pragma once
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "models/blocks/attention.h"
#include "models/layer_spec.h"

namespace quire::models {

// Makes the tables that attention layers look up by position, one of each kind for all layers that
// ask for it.
class LayerTables {
 public:
  explicit LayerTables(int64_t max_positions) : max_positions_(max_positions) {}

  PositionTables of(const AttentionSpec& attention);
  std::shared_ptr<const ops::RopeTable> of(const ops::RopeParams& rope);

 private:
  // Without params: of layers that do not rotate, whose heads have head_dim.
  struct Rope {
    std::optional<ops::RopeParams> params;
    int64_t head_dim;
    std::shared_ptr<const ops::RopeTable> table;
  };

  std::shared_ptr<const ops::RopeTable> rope_of(const std::optional<ops::RopeParams>& params,
                                                int64_t head_dim);

  int64_t max_positions_;
  std::vector<Rope> ropes_;
  std::vector<std::pair<PositionScaleSpec, std::shared_ptr<const std::vector<float>>>> scales_;
};

// Bytes of all these tables for each position.
int64_t table_bytes(const ModelSpec& spec);

}  // namespace quire::models
