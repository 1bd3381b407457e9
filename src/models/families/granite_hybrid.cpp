#include "models/families/families.h"

namespace quire::models {
namespace {

// "attention" in files from before transformers 5.
void check_layer_types(const formats::HfConfig& config) {
  if (config.layer_types.empty())
    config.reader().fail("layer_types", "is missing, so that all layers are mamba");
  for (const std::string& type : config.layer_types)
    if (type != "attention" && type != "full_attention")
      config.reader().fail(
          "layer_types", "has the type \"" + type + "\"; supported are models of attention alone");
}

bool heads_rotate(const formats::HfConfig& config) {
  constexpr const char* kKey = "position_embedding_type";
  const std::string type = config.get_string(kKey, "nope");
  if (type != "rope" && type != "nope")
    config.reader().fail(kKey, "is \"" + type + "\"; supported are rope and nope");
  return type == "rope";
}

}  // namespace

// Granite 4 without mamba layers (model card of ibm-granite/granite-4.0-micro): Granite whose MLP
// is what others have as a shared expert, with experts beside it or without.
ModelSpec granite_hybrid(const formats::HfConfig& config, int64_t max_positions) {
  check_layer_types(config);
  const int64_t experts = config.get_int("num_local_experts", 8, {.min = 0, .max = 1 << 16});
  const int64_t width =
      config.reader().require_int("shared_intermediate_size", {.min = 1, .max = 1 << 24});
  ModelSpec spec =
      experts > 0 ? granite_moe(config, max_positions) : granite(config, max_positions);
  const bool rotates = heads_rotate(config);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".shared_mlp.";
    LayerSpec& layer = spec.layers[i];
    if (!rotates) std::get<AttentionSpec>(layer.mixer).rope.reset();
    if (experts > 0) continue;
    auto& mlp = std::get<MlpSpec>(layer.ffn);
    mlp.intermediate = width;
    mlp.gate_up_weights = {prefix + "input_linear.weight"};
    mlp.down_weight = prefix + "output_linear.weight";
  }
  return spec;
}

}  // namespace quire::models
