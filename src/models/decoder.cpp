#include "models/decoder.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "models/adapters.h"
#include "models/device_limits.h"
#include "models/header_loader.h"
#include "models/layer_tables.h"
#include "models/registry.h"
#include "ops/embedding/embedding.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/scale/scale.h"

namespace quire::models {
namespace {

// Whether the checkpoint stores weights around zero where the norms want them around one.
bool has_shifted_norms(const ModelSpec& spec, const formats::Checkpoint& checkpoint,
                       const WeightLoader& weights) {
  if (!spec.has_zero_centred_norms || checkpoint.norms_are_complete()) return false;
  for (const LayerSpec& layer : spec.layers)
    if (const auto* gdn = std::get_if<GdnSpec>(&layer.mixer))
      return !weights.is_mlx_convolution(gdn->conv_weight, gdn->conv_kernel);
  return true;
}

MixerBlock load_mixer(const ops::Context& context, const LayerSpec& layer, const ModelSpec& spec,
                      LayerTables& tables, WeightLoader& weights) {
  if (const auto* gdn = std::get_if<GdnSpec>(&layer.mixer))
    return GdnBlock(*gdn, spec.hidden, spec.norm_eps, weights);
  if (const auto* mla = std::get_if<MlaSpec>(&layer.mixer))
    return MlaBlock(context, *mla, spec.hidden, tables.of(mla->rope), weights);
  const auto& attention = std::get<AttentionSpec>(layer.mixer);
  return AttentionBlock(attention, spec.hidden, spec.norm_eps, tables.of(attention), weights);
}

using Ffn = std::variant<MlpBlock, MoeBlock, MlpAndMoeBlock>;

Ffn load_ffn(const ops::Context& context, const LayerSpec& layer, const ModelSpec& spec,
             WeightLoader& weights) {
  if (const auto* both = std::get_if<MlpAndMoeSpec>(&layer.ffn))
    return MlpAndMoeBlock(context, *both, spec, weights);
  if (const auto* moe = std::get_if<MoeSpec>(&layer.ffn))
    return MoeBlock(context, *moe, spec.hidden, spec.norm_eps, weights);
  return MlpBlock(std::get<MlpSpec>(layer.ffn), spec.hidden, weights);
}

// The layer whose keys and values, or state, a layer has.
int64_t cache_of_layer(const LayerSpec& layer, int64_t index) {
  const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
  return attention ? attention->kv_of_layer.value_or(index) : index;
}

// A layer reads what an earlier one keeps for itself, and no further back than it is kept.
void check_shared_kv(const ModelSpec& spec) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto* reader = std::get_if<AttentionSpec>(&spec.layers[i].mixer);
    if (!reader || !reader->kv_of_layer) continue;
    QUIRE_CHECK(*reader->kv_of_layer >= 0 && *reader->kv_of_layer < static_cast<int64_t>(i));
    const auto& kv = spec.layers[static_cast<size_t>(*reader->kv_of_layer)].mixer;
    const auto* writer = std::get_if<AttentionSpec>(&kv);
    QUIRE_CHECK(writer && !writer->kv_of_layer && writer->kv_heads == reader->kv_heads &&
                writer->head_dim == reader->head_dim &&
                writer->window_left == reader->window_left &&
                writer->window_step == reader->window_step && !reader->norms_follow_rope)
        << "layer " << i;
  }
}

std::unique_ptr<WeightLoader> make_loader(const ops::Context& context,
                                          const formats::Checkpoint& checkpoint, mx::Dtype dtype,
                                          const LoadOptions& options) {
  if (options.headers_only)
    return std::make_unique<HeaderLoader>(context, checkpoint, dtype, options.progress);
  return std::make_unique<WeightLoader>(context, checkpoint, dtype, options.progress,
                                        options.int8_activations);
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
  const std::unique_ptr<WeightLoader> loader = make_loader(context_, checkpoint, dtype_, options);
  WeightLoader& weights = *loader;
  if (context_.device->metal())
    weights.map_files(options.snapshot ? options.snapshot
                                       : MappedFiles::Take(&formats::DataFile::snapshot));
  AdapterLoader adapters(context_, options.adapters, dtype_);
  num_adapters_ = static_cast<int64_t>(options.adapters.size());
  if (num_adapters_ > 0) weights.set_adapters(adapters);
  LayerTables tables(spec_.max_positions);
  layers_.reserve(spec_.layers.size());
  check_shared_kv(spec_);
  if (has_shifted_norms(spec_, checkpoint, weights)) weights.set_norm_offset(1.0f);
  if (spec_.layer_inputs) layer_inputs_.emplace(*spec_.layer_inputs, spec_, dtype_, weights);
  for (const LayerSpec& layer : spec_.layers) layers_.push_back(load_layer(layer, tables, weights));
  final_norm_.emplace(spec_.final_norm, spec_.hidden, spec_.norm_eps, weights);
  load_ends(weights, checkpoint, options.head_optional);
  skipped_tensors_ = weights.finish(spec_.ignored);
  unpacked_weights_ = weights.unpacked();
  weights.check_activations();
  whole_activations_ = weights.whole_activations();
  adapters.finish(checkpoint);
  weight_bytes_ = weights.packed_bytes() + adapters.packed_bytes();
  mapped_weights_ = weights.mapped_weights();
  checkpoint.check_unchanged();
}

Decoder::Layer Decoder::load_layer(const LayerSpec& layer, LayerTables& tables,
                                   WeightLoader& weights) const {
  const auto index = static_cast<int64_t>(layers_.size());
  // One norm of both parts is no part's own.
  const bool share_norm = layer.is_parallel && !layer.ffn_input_norm && layer.mixer_input_norm;
  const auto mixer_norm = share_norm ? std::nullopt : layer.mixer_input_norm;
  Layer loaded = {.mixer_frame = load_frame(mixer_norm, layer.mixer_output_norm,
                                            layer.residual_multiplier, spec_, weights),
                  .ffn_frame = load_frame(layer.ffn_input_norm, layer.ffn_output_norm,
                                          layer.residual_multiplier, spec_, weights),
                  .mixer = load_mixer(context_, layer, spec_, tables, weights),
                  .ffn = load_ffn(context_, layer, spec_, weights),
                  .cache = static_cast<size_t>(cache_of_layer(layer, index)),
                  .is_parallel = layer.is_parallel};
  if (share_norm)
    loaded.norm_of_both.emplace(*layer.mixer_input_norm, spec_.hidden, spec_.norm_eps, weights);
  if (layer.input) loaded.input.emplace(*layer.input, spec_, index, weights);
  if (!layer.output_scale.empty()) loaded.output_scale = weights.number(layer.output_scale);
  return loaded;
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
  // What is never to be produced is no logit in any step, so samplers need not know of it.
  const std::vector<int64_t>& never = checkpoint.generation_config().suppress_tokens;
  head_ = weights.head(tied ? spec_.embed_weight : spec_.head_weight,
                       has_head_ ? spec_.head_bias : "", spec_.vocab, spec_.hidden, never);
  if (!tied) embedding_.emplace(spec_.embed_weight, spec_.vocab, spec_.hidden, dtype_, weights);
}

mx::array Decoder::embed(const mx::array& ids) const {
  const mx::array h =
      embedding_ ? embedding_->look_up(context_, ids) : ops::embedding(context_, ids, head_.weight);
  if (spec_.embed_multiplier == 1) return h;
  return ops::scale(context_, h, rounded_to(dtype_, spec_.embed_multiplier));
}

mx::array Decoder::run_layer(const Layer& layer, const mx::array& h,
                             const ops::BatchLayoutPtr& layout, const ops::AdapterRowsPtr& adapters,
                             ops::LayerCache& cache) const {
  const auto mix_in = [&](const mx::array& x, const Frame& frame) {
    return std::visit(
        [&](const auto& mixer) { return mixer.forward(context_, x, frame, layout, cache); },
        layer.mixer);
  };
  const auto feed_in = [&](const mx::array& x, const Frame& frame) {
    return std::visit([&](const auto& ffn) { return ffn.forward(context_, x, frame); }, layer.ffn);
  };
  // Frames are copied in steps with adapters only.
  const auto mix = [&](const mx::array& x, const Frame& frame) {
    return adapters ? mix_in(x, frame.in_step(adapters)) : mix_in(x, frame);
  };
  const auto feed = [&](const mx::array& x, const Frame& frame) {
    return adapters ? feed_in(x, frame.in_step(adapters)) : feed_in(x, frame);
  };
  if (!layer.is_parallel) return feed(mix(h, layer.mixer_frame), layer.ffn_frame);
  const mx::array x = layer.norm_of_both ? layer.norm_of_both->apply(context_, h) : h;
  return feed(x, layer.ffn_frame.beside(mix(x, layer.mixer_frame.beside(h))));
}

StepOutput Decoder::forward(const mx::array& ids, const ops::BatchLayoutPtr& layout,
                            std::vector<ops::LayerCache>& caches) const {
  mx::array h = embed(ids);  // the residual stream
  std::optional<mx::array> inputs;
  if (layer_inputs_) inputs = layer_inputs_->forward(context_, ids, h);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    h = run_layer(layer, h, ops::layout_of_layer(layout, layer.cache), layout->adapters,
                  caches[layer.cache]);
    if (layer.input) h = layer.input->forward(context_, h, *inputs);
    if (layer.output_scale != 1) h = ops::scale(context_, h, layer.output_scale);
    if (ablation_.eval_per_layer) mx::eval(h);
  }
  // Only the rows that are sampled (or scored) meet the last norm and the vocabulary.
  StepOutput out{.logits = ablation_.project_all_rows
                               ? ops::gather_rows(context_, project(h), layout)
                               : project(ops::gather_rows(context_, h, layout)),
                 .states = {}};
  if (layout->pooled)
    out.states = final_norm_->apply(context_, ops::gather_rows(context_, h, layout->pooled));
  return out;
}

// The last norm and the vocabulary.
mx::array Decoder::project(const mx::array& h) const {
  const mx::array logits =
      final_norm_->apply_linear(context_, h, head_, {.out_dtype = mx::float32});
  if (spec_.logits_multiplier == 1 && spec_.logits_softcap == 0) return logits;
  return ops::scale(context_, logits, spec_.logits_multiplier, spec_.logits_softcap);
}

std::unique_ptr<Model> load_model(ops::Context context, const formats::Checkpoint& checkpoint,
                                  const LoadOptions& options) {
  ModelSpec spec = model_spec_of(checkpoint, options);
  check_device_limits(spec, ops::limits_of(*context.device));
  return std::make_unique<Decoder>(std::move(context), checkpoint, std::move(spec), options);
}

void check_tensors(const formats::Checkpoint& checkpoint) {
  LoadOptions options;
  options.headers_only = true;
  load_model(ops::make_context(1), checkpoint, options);
}

}  // namespace quire::models
