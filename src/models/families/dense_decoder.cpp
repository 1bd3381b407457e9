#include <cmath>

#include "models/families/families.h"

namespace quire::models {
namespace {

LayerSpec dense_layer(const formats::HfConfig& config, int64_t layer, const ops::Gate& gate,
                      int64_t max_positions) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  AttentionSpec attention;
  attention.heads = config.num_attention_heads;
  attention.kv_heads = config.num_key_value_heads;
  attention.head_dim = config.head_dim;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  for (const char* part : {"q_proj", "k_proj", "v_proj"})
    attention.qkv_weights.push_back(prefix + "self_attn." + part + ".weight");
  attention.o_weight = prefix + "self_attn.o_proj.weight";
  const auto& types = config.layer_types;
  attention.rope = rope_params(
      config, types.empty() ? config.rope : config.rope_for(types.at(static_cast<size_t>(layer))),
      max_positions);
  MlpSpec mlp;
  mlp.gate = gate;
  mlp.intermediate = config.intermediate_size;
  mlp.gate_up_weights = {prefix + "mlp.gate_proj.weight", prefix + "mlp.up_proj.weight"};
  mlp.down_weight = prefix + "mlp.down_proj.weight";
  return {.mixer_input_norm = NormSpec{prefix + "input_layernorm.weight"},
          .ffn_input_norm = NormSpec{prefix + "post_attention_layernorm.weight"},
          .mixer = std::move(attention),
          .ffn = std::move(mlp)};
}

}  // namespace

void add_attention_biases(const std::string& prefix, AttentionSpec& attention, bool output) {
  for (const char* part : {"q_proj", "k_proj", "v_proj"})
    attention.qkv_biases.push_back(prefix + "self_attn." + part + ".bias");
  if (output) attention.o_bias = prefix + "self_attn.o_proj.bias";
}

bool is_sliding_layer(const formats::HfConfig& config, size_t layer) {
  const std::string& type = config.layer_types.at(layer);
  if (type == "sliding_attention") return true;
  if (type == "full_attention") return false;
  config.reader().fail("layer_types", "has the type \"" + type +
                                          "\"; supported are sliding_attention and full_attention");
}

int64_t window_of_layer(const formats::HfConfig& config, size_t layer) {
  const bool listed = !config.layer_types.empty() && is_sliding_layer(config, layer);
  if (!config.sliding_window || !config.use_sliding_window.value_or(false)) return -1;
  constexpr int64_t kDefaultMaxWindowLayers = 28;  // transformers' Qwen2Config and Qwen3Config
  const bool slides = config.layer_types.empty()
                          ? static_cast<int64_t>(layer) >=
                                config.max_window_layers.value_or(kDefaultMaxWindowLayers)
                          : listed;
  return slides ? *config.sliding_window - 1 : -1;
}

ModelSpec dense_decoder(const formats::HfConfig& config, int64_t max_positions) {
  const ops::Gate gate = gate_of(config);
  ModelSpec spec;
  spec.architecture = config.architectures.at(0);
  spec.hidden = config.hidden_size;
  spec.vocab = config.vocab_size;
  spec.max_positions = max_positions;
  spec.norm_eps = static_cast<float>(config.rms_norm_eps);
  spec.embed_weight = "model.embed_tokens.weight";
  spec.final_norm.weight = "model.norm.weight";
  if (!config.tie_word_embeddings) spec.head_weight = "lm_head.weight";
  // Old exports store buffers that are derived from the config, and some repeat a tied head, as
  // mlx-vlm does inside a wrapper.
  spec.ignored = {"model.rotary_emb.inv_freq"};
  if (config.tie_word_embeddings)
    spec.ignored.insert(spec.ignored.end(), {"lm_head.weight", "language_model.lm_head.weight"});
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    spec.layers.push_back(dense_layer(config, i, gate, max_positions));
    spec.ignored.push_back(prefix + "self_attn.rotary_emb.inv_freq");
  }
  return spec;
}

}  // namespace quire::models
