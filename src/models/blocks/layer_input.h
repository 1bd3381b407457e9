#pragma once
#include "models/blocks/embedding_table.h"
#include "models/blocks/frame.h"
#include "models/layer_spec.h"
#include "models/weights.h"

namespace quire::models {

// Makes the inputs that layers have of their own, as LayerInputsSpec says: six nodes a step.
class LayerInputs {
 public:
  LayerInputs(const LayerInputsSpec& spec, const ModelSpec& model, mx::Dtype dtype,
              WeightLoader& weights);

  // ids [T], e [T, hidden], their rows as the first layer gets them. Returns [T, layers * width].
  mx::array forward(const ops::Context& context, const mx::array& ids, const mx::array& e) const;

 private:
  LayerInputsSpec spec_;
  float norm_eps_;
  EmbeddingTable embedding_;
  ops::LinearWeight projection_;
  mx::array norm_;  // [width] float32
};

// What one layer does with its own: three or four nodes.
class LayerInputBlock {
 public:
  // `layer`: whose columns of the inputs it takes.
  LayerInputBlock(const LayerInputSpec& spec, const ModelSpec& model, int64_t layer,
                  WeightLoader& weights);

  // h [T, hidden], the residual stream; inputs as LayerInputs made them. Returns the stream.
  mx::array forward(const ops::Context& context, const mx::array& h, const mx::array& inputs) const;

 private:
  ops::Gate kind_;
  int64_t first_;  // column
  ops::LinearWeight gate_;
  Projection projection_;
  Frame frame_;
};

}  // namespace quire::models
