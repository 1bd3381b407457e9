#include <algorithm>

#include "models/families/families.h"

namespace quire::models {

bool states_key(const formats::HfConfig& config, std::string_view key) {
  const auto& top = config.raw.as_object();
  const auto* text = top.if_contains("text_config");
  return (text && text->is_object() && text->as_object().contains(key)) || top.contains(key);
}

bool is_on(const formats::HfConfig& config, std::string_view key, bool fallback) {
  const json::value* value = config.reader().find(key);
  return value && value->is_int64() ? value->get_int64() != 0 : config.get_bool(key, fallback);
}

float softcap_of(const formats::HfConfig& config, std::string_view key, double fallback) {
  if (states_key(config, key)) fallback = 0;
  const double cap = config.get_double(key, fallback, {.min = 0});
  return cap == 0 ? 0 : static_cast<float>(config.get_double(key, fallback, formats::kFactors));
}

int64_t rotary_dim_of(const formats::HfConfig& config, double fallback) {
  const formats::ConfigReader reader = config.reader();
  const bool is_given = reader.find("partial_rotary_factor") ||
                        formats::rope_reader(reader).find("partial_rotary_factor");
  const double share = is_given ? config.rope.partial_rotary_factor : fallback;
  return static_cast<int64_t>(static_cast<double>(config.head_dim) * share);
}

void norm_outputs_only(const std::string& prefix, LayerSpec& layer) {
  layer.mixer_input_norm.reset();
  layer.ffn_input_norm.reset();
  layer.mixer_output_norm = NormSpec{prefix + "post_attention_layernorm.weight"};
  layer.ffn_output_norm = NormSpec{prefix + "post_feedforward_layernorm.weight"};
}

void norm_inputs_and_outputs(const std::string& prefix, LayerSpec& layer) {
  norm_outputs_only(prefix, layer);
  layer.mixer_input_norm = NormSpec{prefix + "input_layernorm.weight"};
  layer.ffn_input_norm = NormSpec{prefix + "pre_feedforward_layernorm.weight"};
}

void use_layer_norms(ModelSpec& spec, bool biases) {
  const auto change = [&](NormSpec& norm) {
    norm.kind = NormSpec::Kind::kLayer;
    const std::string stem = norm.weight.substr(0, norm.weight.rfind("weight"));
    if (biases) norm.bias = stem + "bias";
  };
  for (LayerSpec& layer : spec.layers)
    for (auto* norm : {&layer.mixer_input_norm, &layer.mixer_output_norm, &layer.ffn_input_norm,
                       &layer.ffn_output_norm})
      if (*norm) change(**norm);
  change(spec.final_norm);
}

void ignore_mtp_layers(const formats::HfConfig& config, ModelSpec& spec) {
  const int64_t count = config.get_int("num_nextn_predict_layers", 1, {.min = 0, .max = 64});
  for (int64_t i = 0; i < std::max<int64_t>(1, count); ++i)
    spec.ignored.push_back("model.layers." + std::to_string(config.num_hidden_layers + i) + ".*");
}

void require_only(const formats::HfConfig& config, std::string_view key, std::string_view value) {
  const std::string stated = config.get_string(key, value);
  if (stated != value)
    config.reader().fail(key, "is \"" + stated + "\"; supported is " + std::string(value));
}

void require_only(const formats::HfConfig& config, std::string_view key, int64_t value) {
  const int64_t stated = config.get_int(key, value);
  if (stated != value)
    config.reader().fail(
        key, "is " + std::to_string(stated) + "; supported is " + std::to_string(value));
}

void ignore_vision(ModelSpec& spec) {
  for (const char* name :
       {"vision_tower.*", "model.vision_tower.*", "vision_model.*", "multi_modal_projector.*",
        "model.multi_modal_projector.*", "embed_vision.*", "model.embed_vision.*"})
    spec.ignored.emplace_back(name);
}

void ignore_audio(ModelSpec& spec) {
  for (const char* name :
       {"audio_tower.*", "model.audio_tower.*", "embed_audio.*", "model.embed_audio.*"})
    spec.ignored.emplace_back(name);
}

}  // namespace quire::models
