#pragma once
#include <memory>
#include <variant>
#include <vector>

#include "models/blocks/attention.h"
#include "models/blocks/embedding_table.h"
#include "models/blocks/gdn.h"
#include "models/blocks/layer_input.h"
#include "models/blocks/mla.h"
#include "models/blocks/mlp.h"
#include "models/blocks/mlp_and_moe.h"
#include "models/blocks/moe.h"
#include "models/layer_tables.h"
#include "models/model.h"
#include "models/model_size.h"

namespace quire::models {

using MixerBlock = std::variant<AttentionBlock, GdnBlock, MlaBlock>;

// Runs any ModelSpec: embedding, layers in their frames, final norm, head. The only layer
// loop there is; a family that needs something else brings a new block for the variant in
// LayerSpec.
class Decoder : public Model {
 public:
  Decoder(ops::Context context, const formats::Checkpoint& checkpoint, ModelSpec spec,
          const LoadOptions& options);

  StepOutput forward(const mx::array& ids, const ops::BatchLayoutPtr& layout,
                     std::vector<ops::LayerCache>& caches) const override;

  const ops::Context& context() const override { return context_; }
  std::vector<CacheSpec> cache_specs() const override { return models::cache_specs(spec_); }
  mx::Dtype dtype() const override { return dtype_; }
  int64_t vocab_size() const override { return spec_.vocab; }
  int64_t hidden_size() const override { return spec_.hidden; }
  int64_t num_adapters() const override { return num_adapters_; }
  int64_t max_positions() const override { return spec_.max_positions; }
  bool has_head() const override { return has_head_; }
  size_t weight_bytes() const override { return weight_bytes_; }
  std::optional<MappedWeights> mapped_weights() const override { return mapped_weights_; }
  std::string skipped_tensors() const override { return skipped_tensors_; }
  std::string unpacked_weights() const override { return unpacked_weights_; }
  std::string whole_activations() const override { return whole_activations_; }
  int64_t widest_activation() const override { return models::widest_activation(spec_); }

 private:
  struct Layer {
    Frame mixer_frame, ffn_frame;
    MixerBlock mixer;
    std::variant<MlpBlock, MoeBlock, MlpAndMoeBlock> ffn;
    std::optional<LayerInputBlock> input = std::nullopt;
    size_t cache = 0;  // the layer whose keys and values, or state, it has: mostly itself
    float output_scale = 1.0f;
    bool is_parallel = false;
    std::optional<Norm> norm_of_both = std::nullopt;  // of its parts, if they are parallel
  };
  Layer load_layer(const LayerSpec& layer, LayerTables& tables, WeightLoader& weights) const;
  // `adapters`: of the step.
  mx::array run_layer(const Layer& layer, const mx::array& h, const ops::BatchLayoutPtr& layout,
                      const ops::AdapterRowsPtr& adapters, ops::LayerCache& cache) const;
  mx::array embed(const mx::array& ids) const;
  mx::array project(const mx::array& h) const;
  void load_ends(WeightLoader& weights, const formats::Checkpoint& checkpoint, bool head_optional);
  void load(const formats::Checkpoint& checkpoint, const LoadOptions& options);

  ops::Context context_;
  ModelSpec spec_;
  mx::Dtype dtype_;
  std::vector<Layer> layers_;
  // [V, hidden]; also the embedding if tied, and alone the embedding if there is no head
  ops::LinearWeight head_;
  bool has_head_ = true;
  std::optional<EmbeddingTable> embedding_;  // [V, hidden], if untied
  std::optional<LayerInputs> layer_inputs_;
  std::optional<Norm> final_norm_;
  AblationOptions ablation_;
  int64_t num_adapters_ = 0;
  size_t weight_bytes_ = 0;
  std::optional<MappedWeights> mapped_weights_;
  std::string skipped_tensors_, unpacked_weights_, whole_activations_;
};

}  // namespace quire::models
