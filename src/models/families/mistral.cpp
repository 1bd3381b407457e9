#include "models/families/families.h"

namespace quire::models {
namespace {

// Queries are scaled by their position (arXiv:2501.19399).
PositionScaleSpec q_scale_of(const formats::HfConfig& config) {
  const auto* rope = config.reader().find_object("rope_parameters");
  if (!rope) config.reader().fail("rope_parameters", "is missing");
  return {.beta = config.reader()
                      .inside("rope_parameters", *rope)
                      .require_double("llama_4_scaling_beta", {.min = 0, .max = 1e6}),
          .length = config.rope.original_max_position_embeddings};
}

}  // namespace

// Mistral 7B (arXiv:2310.06825): Llama's layout with a sliding window in every layer, if the config
// has one.
ModelSpec mistral(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec, [&](size_t, const std::string&, AttentionSpec& attention, MlpSpec&) {
    if (config.sliding_window) attention.window_left = *config.sliding_window - 1;
  });
  return spec;
}

// Ministral 8B (model card of mistralai/Ministral-8B-Instruct-2410): windows by layer types.
ModelSpec ministral(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  use_layer_types(config, spec, {.window = 4096, .full_every = INT32_MAX}, max_positions);
  return spec;
}

// Ministral 3 (model cards of mistralai/Ministral-3-*).
ModelSpec ministral3(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec, [&](size_t, const std::string&, AttentionSpec& attention, MlpSpec&) {
    attention.q_scale = q_scale_of(config);
    if (config.sliding_window) attention.window_left = *config.sliding_window - 1;
  });
  return spec;
}

// Mistral Small 3.1 and later, Devstral, Ministral 3: the language model inside a vision wrapper.
ModelSpec mistral3(const formats::HfConfig& config, int64_t max_positions) {
  const std::string inside = config.get_string("model_type", "");
  if (inside != "mistral" && inside != "ministral3")
    config.reader().fail("model_type",
                         "is \"" + inside + "\"; supported are mistral and ministral3");
  ModelSpec spec =
      inside == "mistral" ? mistral(config, max_positions) : ministral3(config, max_positions);
  ignore_vision(spec);
  return spec;
}

}  // namespace quire::models
