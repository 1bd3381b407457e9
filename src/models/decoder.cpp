#include "models/decoder.h"

#include <algorithm>

#include "base/error.h"
#include "models/device_limits.h"
#include "models/registry.h"
#include "ops/embedding/embedding.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/rms_norm/rms_norm.h"

namespace quire::models {
namespace {

// Whether the checkpoint stores weights around zero where the norms want them around one.
bool has_shifted_norms(const ModelSpec& spec, const WeightLoader& weights) {
  if (!spec.has_zero_centred_norms) return false;
  for (const LayerSpec& layer : spec.layers)
    if (const auto* gdn = std::get_if<GdnSpec>(&layer.mixer))
      return !weights.is_mlx_convolution(gdn->conv_weight, gdn->conv_kernel);
  return true;
}

std::variant<AttentionBlock, GdnBlock> load_mixer(const std::variant<AttentionSpec, GdnSpec>& mixer,
                                                  const ModelSpec& spec,
                                                  std::shared_ptr<const ops::RopeTable> rope,
                                                  WeightLoader& weights) {
  if (const auto* gdn = std::get_if<GdnSpec>(&mixer))
    return GdnBlock(*gdn, spec.hidden, spec.norm_eps, weights);
  return AttentionBlock(std::get<AttentionSpec>(mixer), spec.hidden, spec.norm_eps, std::move(rope),
                        weights);
}

std::variant<MlpBlock, MoeBlock> load_ffn(const std::variant<MlpSpec, MoeSpec>& spec,
                                          int64_t hidden, WeightLoader& weights) {
  if (const auto* moe = std::get_if<MoeSpec>(&spec)) return MoeBlock(*moe, hidden, weights);
  return MlpBlock(std::get<MlpSpec>(spec), hidden, weights);
}

}  // namespace

Decoder::Decoder(ops::Context context, const formats::Checkpoint& checkpoint, ModelSpec spec,
                 const LoadOptions& options)
    : context_(std::move(context)),
      spec_(std::move(spec)),
      dtype_(dtype_of(checkpoint, spec_, options)),
      ablation_(options.ablation) {
  load(checkpoint, options);
}

void Decoder::load(const formats::Checkpoint& checkpoint, const LoadOptions& options) {
  WeightLoader weights(context_, checkpoint, dtype_, options.progress, options.int8_activations);
  const auto rope = ops::make_rope_table(spec_.rope, spec_.max_positions);
  layers_.reserve(spec_.layers.size());
  if (has_shifted_norms(spec_, weights)) weights.set_norm_offset(1.0f);
  for (const LayerSpec& layer : spec_.layers) {
    layers_.push_back({.input_norm = weights.norm(layer.input_norm, spec_.hidden),
                       .post_attention_norm = weights.norm(layer.post_attention_norm, spec_.hidden),
                       .mixer = load_mixer(layer.mixer, spec_, rope, weights),
                       .ffn = load_ffn(layer.ffn, spec_.hidden, weights)});
  }
  final_norm_ = weights.norm(spec_.final_norm, spec_.hidden);
  load_ends(weights, checkpoint, options.head_optional);
  skipped_tensors_ = weights.finish(spec_.ignored);
  unpacked_weights_ = weights.unpacked();
  weight_bytes_ = weights.packed_bytes();
  checkpoint.check_unchanged();
}

// Head and embedding.
void Decoder::load_ends(WeightLoader& weights, const formats::Checkpoint& checkpoint,
                        bool head_optional) {
  has_head_ = spec_.head_weight.empty() || weights.has(spec_.head_weight);
  if (!has_head_ && !head_optional) {
    throw LoadError(checkpoint.dir() + ": tensor " + spec_.head_weight +
                    " is missing: a model without a head writes no text. If it is one for "
                    "embeddings, `quire serve --runner pooling` takes it");
  }
  const bool tied = spec_.head_weight.empty() || !has_head_;
  head_ =
      weights.linear(tied ? spec_.embed_weight : spec_.head_weight, "", spec_.vocab, spec_.hidden);
  if (!tied && weights.is_quantised(spec_.embed_weight)) {
    packed_embedding_ = weights.linear(spec_.embed_weight, "", spec_.vocab, spec_.hidden).weight;
  } else if (!tied) {
    embedding_ = weights.stored_matrix(spec_.embed_weight, spec_.vocab, spec_.hidden);
  }
}

mx::array Decoder::embed(const mx::array& ids) const {
  if (packed_embedding_) return ops::embedding(context_, ids, *packed_embedding_);
  if (embedding_.memory)
    return ops::embedding(context_, ids, embedding_.rows, dtype_, embedding_.memory);
  return ops::embedding(context_, ids, head_.weight);
}

StepOutput Decoder::forward(const mx::array& ids, const ops::BatchLayoutPtr& layout,
                            std::vector<ops::LayerCache>& caches) const {
  mx::array h = embed(ids);  // the residual stream
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const ops::LinearOptions::Norm norm{layer.input_norm, spec_.norm_eps};
    h = std::visit(
        [&](const auto& mixer) { return mixer.forward(context_, h, norm, layout, caches[i]); },
        layer.mixer);
    h = std::visit(
        [&](const auto& ffn) {
          return ffn.forward(context_, h, {layer.post_attention_norm, spec_.norm_eps});
        },
        layer.ffn);
    if (ablation_.eval_per_layer) mx::eval(h);
  }
  // Only the rows that are sampled (or scored) meet the last norm and the vocabulary.
  StepOutput out{.logits = ablation_.project_all_rows
                               ? ops::gather_rows(context_, project(h), layout)
                               : project(ops::gather_rows(context_, h, layout)),
                 .states = {}};
  if (layout->pooled)
    out.states = ops::rms_norm(context_, ops::gather_rows(context_, h, layout->pooled),
                               *final_norm_, spec_.norm_eps);
  return out;
}

// The last norm and the vocabulary.
mx::array Decoder::project(const mx::array& h) const {
  return ops::linear(
      context_, h, head_,
      {.out_dtype = mx::float32, .norm = ops::LinearOptions::Norm{*final_norm_, spec_.norm_eps}});
}

std::unique_ptr<Model> load_model(ops::Context context, const formats::Checkpoint& checkpoint,
                                  const LoadOptions& options) {
  ModelSpec spec = model_spec_of(checkpoint, options);
  check_device_limits(spec, *context.device);
  return std::make_unique<Decoder>(std::move(context), checkpoint, std::move(spec), options);
}

}  // namespace quire::models
