#include "models/decoder.h"

#include <algorithm>

#include "base/error.h"
#include "models/registry.h"
#include "ops/embedding/embedding.h"
#include "ops/gather_rows/gather_rows.h"

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

CacheSpec cache_of(const AttentionSpec& attention) {
  return KvCacheSpec{.kv_heads = attention.kv_heads, .head_dim = attention.head_dim};
}

CacheSpec cache_of(const GdnSpec& gdn) {
  return StateCacheSpec{.conv_dim = gdn.conv_dim(),
                        .conv_kernel = gdn.conv_kernel,
                        .v_heads = gdn.v_heads,
                        .v_dim = gdn.v_dim,
                        .k_dim = gdn.k_dim};
}

// Elements per token of the widest array inside.
int64_t width_of(const AttentionSpec& attention) {
  const int64_t gates = attention.has_output_gate ? attention.heads : 0;
  return (attention.heads + 2 * attention.kv_heads + gates) * attention.head_dim;
}

int64_t width_of(const GdnSpec& gdn) { return gdn.conv_dim() + gdn.v_heads * (gdn.v_dim + 2); }

std::variant<MlpBlock, MoeBlock> load_ffn(const std::variant<MlpSpec, MoeSpec>& spec,
                                          int64_t hidden, WeightLoader& weights) {
  if (const auto* moe = std::get_if<MoeSpec>(&spec)) return MoeBlock(*moe, hidden, weights);
  return MlpBlock(std::get<MlpSpec>(spec), hidden, weights);
}

// Elements per token of the widest array inside; a mixture of experts holds float32 sums and one
// expert's rows besides.
int64_t ffn_width(const std::variant<MlpSpec, MoeSpec>& spec, int64_t hidden) {
  if (const auto* mlp = std::get_if<MlpSpec>(&spec)) return 2 * mlp->intermediate;
  const auto& moe = std::get<MoeSpec>(spec);
  const int64_t shared = moe.shared ? moe.shared->intermediate : 0;
  return 2 * std::max(moe.intermediate, shared) + 6 * hidden;
}

}  // namespace

Decoder::Decoder(ops::Context context, std::shared_ptr<const formats::Checkpoint> checkpoint,
                 ModelSpec spec, const LoadOptions& options)
    : context_(std::move(context)),
      spec_(std::move(spec)),
      dtype_(mx::float32),
      ablation_(options.ablation) {
  if (options.dtype) {
    dtype_ = *options.dtype;
  } else if (const auto stored = activation_dtype(*checkpoint, spec_.embed_weight)) {
    dtype_ = *stored;
  }
  load(std::move(checkpoint), options);
}

void Decoder::load(std::shared_ptr<const formats::Checkpoint> checkpoint,
                   const LoadOptions& options) {
  WeightLoader weights(context_, *checkpoint, dtype_, options.progress, options.int8_activations);
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
  const bool tied = spec_.head_weight.empty();
  head_ =
      weights.linear(tied ? spec_.embed_weight : spec_.head_weight, "", spec_.vocab, spec_.hidden);
  if (!tied && weights.is_quantised(spec_.embed_weight)) {
    packed_embedding_ = weights.linear(spec_.embed_weight, "", spec_.vocab, spec_.hidden).weight;
  } else if (!tied) {
    embedding_ = weights.mapped_matrix(spec_.embed_weight, spec_.vocab, spec_.hidden);
    files_ = std::move(checkpoint);  // the embedding is read where the file maps it
  }
  skipped_tensors_ = weights.finish(spec_.ignored);
  weight_bytes_ = weights.packed_bytes();
}

mx::array Decoder::embed(const mx::array& ids) const {
  if (packed_embedding_) return ops::embedding(context_, ids, *packed_embedding_);
  if (embedding_.data) return ops::embedding(context_, ids, embedding_, dtype_, files_);
  return ops::embedding(context_, ids, head_.weight);
}

mx::array Decoder::forward(const mx::array& ids, const ops::BatchLayoutPtr& layout,
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
  if (ablation_.project_all_rows) return ops::gather_rows(context_, project(h), layout);
  // Only the rows that are sampled (or scored) meet the last norm and the vocabulary.
  return project(ops::gather_rows(context_, h, layout));
}

// The last norm and the vocabulary.
mx::array Decoder::project(const mx::array& h) const {
  return ops::linear(
      context_, h, head_,
      {.out_dtype = mx::float32, .norm = ops::LinearOptions::Norm{*final_norm_, spec_.norm_eps}});
}

std::vector<CacheSpec> Decoder::cache_specs() const {
  std::vector<CacheSpec> specs;
  for (const LayerSpec& layer : spec_.layers)
    specs.push_back(std::visit([](const auto& mixer) { return cache_of(mixer); }, layer.mixer));
  return specs;
}

int64_t Decoder::widest_activation() const {
  int64_t widest = spec_.hidden;
  for (const LayerSpec& layer : spec_.layers) {
    const int64_t mixer = std::visit([](const auto& m) { return width_of(m); }, layer.mixer);
    widest = std::max({widest, mixer, ffn_width(layer.ffn, spec_.hidden)});
  }
  return widest;
}

std::unique_ptr<Model> load_model(ops::Context context,
                                  std::shared_ptr<const formats::Checkpoint> checkpoint,
                                  const LoadOptions& options) {
  const int64_t max_positions = options.max_positions > 0
                                    ? options.max_positions
                                    : checkpoint->config().max_position_embeddings;
  ModelSpec spec = make_model_spec(checkpoint->config(), max_positions);
  return std::make_unique<Decoder>(std::move(context), std::move(checkpoint), std::move(spec),
                                   options);
}

}  // namespace quire::models
