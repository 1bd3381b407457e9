#include <cmath>

#include "base/error.h"
#include "models/families/families.h"

namespace quire::models {
namespace {

// The config's rope facts as the op wants them. Phi-3's two sets of longrope factors: transformers
// picks one by the length of each forward, which would make a cached prefix depend on what follows
// it; like vLLM, one set is fixed at load time, by how far sequences may reach.
ops::RopeParams rope_params(const formats::HfConfig& config, int64_t max_positions) {
  using Scaling = ops::RopeParams::Scaling;
  const formats::RopeConfig& rope = config.rope;
  ops::RopeParams p;
  p.rotary_dim =
      static_cast<int64_t>(static_cast<double>(config.head_dim) * rope.partial_rotary_factor);
  p.theta = rope.theta;
  p.factor = rope.factor;
  p.original_max_position_embeddings = static_cast<double>(rope.original_max_position_embeddings);
  p.low_freq_factor = rope.low_freq_factor;
  p.high_freq_factor = rope.high_freq_factor;
  p.beta_fast = rope.beta_fast;
  p.beta_slow = rope.beta_slow;
  p.mscale = rope.mscale.value_or(0.0);
  p.mscale_all_dim = rope.mscale_all_dim.value_or(0.0);
  p.truncate = rope.truncate;
  p.attention_factor = rope.attention_factor.value_or(0.0);
  if (rope.type == "default") {
    p.scaling = Scaling::kDefault;
  } else if (rope.type == "linear") {
    p.scaling = Scaling::kLinear;
  } else if (rope.type == "llama3") {
    p.scaling = Scaling::kLlama3;
  } else if (rope.type == "yarn") {
    p.scaling = Scaling::kYarn;
  } else if (rope.type == "longrope") {
    p.scaling = Scaling::kLongrope;
    const bool is_long = max_positions > rope.original_max_position_embeddings;
    p.extension_factors = is_long ? rope.long_factor : rope.short_factor;
    p.factor = static_cast<double>(config.max_position_embeddings) /
               static_cast<double>(rope.original_max_position_embeddings);
  } else {
    throw LoadError(
        config.file + ": rope type \"" + rope.type +
        "\" is not supported; supported are default, linear, llama3, yarn and longrope");
  }
  return p;
}

LayerSpec dense_layer(const formats::HfConfig& config, const std::string& prefix) {
  AttentionSpec attention;
  attention.heads = config.num_attention_heads;
  attention.kv_heads = config.num_key_value_heads;
  attention.head_dim = config.head_dim;
  attention.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  for (const char* part : {"q_proj", "k_proj", "v_proj"})
    attention.qkv_weights.push_back(prefix + "self_attn." + part + ".weight");
  attention.o_weight = prefix + "self_attn.o_proj.weight";
  MlpSpec mlp;
  mlp.intermediate = config.intermediate_size;
  mlp.gate_up_weights = {prefix + "mlp.gate_proj.weight", prefix + "mlp.up_proj.weight"};
  mlp.down_weight = prefix + "mlp.down_proj.weight";
  return {.input_norm = prefix + "input_layernorm.weight",
          .post_attention_norm = prefix + "post_attention_layernorm.weight",
          .mixer = std::move(attention),
          .ffn = std::move(mlp)};
}

}  // namespace

void add_attention_biases(const std::string& prefix, AttentionSpec& attention, bool output) {
  for (const char* part : {"q_proj", "k_proj", "v_proj"})
    attention.qkv_biases.push_back(prefix + "self_attn." + part + ".bias");
  if (output) attention.o_bias = prefix + "self_attn.o_proj.bias";
}

int64_t window_of_layer(const formats::HfConfig& config, size_t layer) {
  if (!config.sliding_window || !config.use_sliding_window.value_or(false)) return -1;
  constexpr int64_t kDefaultMaxWindowLayers = 28;  // transformers' Qwen2Config and Qwen3Config
  const bool slides = config.layer_types.empty()
                          ? static_cast<int64_t>(layer) >=
                                config.max_window_layers.value_or(kDefaultMaxWindowLayers)
                          : config.layer_types.at(layer) == "sliding_attention";
  return slides ? *config.sliding_window - 1 : -1;
}

ModelSpec dense_decoder(const formats::HfConfig& config, int64_t max_positions) {
  if (config.hidden_act != "silu") {
    throw LoadError(config.file + ": hidden_act \"" + config.hidden_act +
                    "\" is not supported, only \"silu\" is");
  }
  ModelSpec spec;
  spec.architecture = config.architectures.at(0);
  spec.hidden = config.hidden_size;
  spec.vocab = config.vocab_size;
  spec.max_positions = max_positions;
  spec.norm_eps = static_cast<float>(config.rms_norm_eps);
  spec.rope = rope_params(config, max_positions);
  spec.embed_weight = "model.embed_tokens.weight";
  spec.final_norm = "model.norm.weight";
  if (!config.tie_word_embeddings) spec.head_weight = "lm_head.weight";
  // Old exports store buffers that are derived from the config, and some repeat a tied head.
  spec.ignored = {"model.rotary_emb.inv_freq"};
  if (config.tie_word_embeddings) spec.ignored.emplace_back("lm_head.weight");
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    spec.layers.push_back(dense_layer(config, prefix));
    spec.ignored.push_back(prefix + "self_attn.rotary_emb.inv_freq");
  }
  return spec;
}

}  // namespace quire::models
