#include <cmath>

#include "models/families/families.h"

namespace quire::models {
namespace {

// What dense_decoder reads, with the defaults of transformers' Gemma4TextConfig.
formats::HfConfig known_keys(const formats::HfConfig& config) {
  formats::HfConfig known = config;
  known.hidden_act = config.get_string("hidden_activation", "gelu_pytorch_tanh");
  known.tie_word_embeddings |= !states_key(config, "tie_word_embeddings");
  for (int64_t i = 0; config.layer_types.empty() && i < config.num_hidden_layers; ++i)
    known.layer_types.emplace_back((i + 1) % 6 == 0 ? kFullAttention : kSlidingAttention);
  known.layer_types.back() = kFullAttention;  // whatever the file says
  return known;
}

// "vision" is about the tokens of images, which a text model never sees.
void check_causal(const formats::HfConfig& config) {
  const std::string kind = config.get_string("use_bidirectional_attention", "vision");
  if (kind != "vision")
    config.reader().fail("use_bidirectional_attention",
                         "is \"" + kind + "\"; only causal models are supported");
}

// Layers without a window have heads of their own, whose keys may be their values too.
std::vector<HeadShape> head_shapes(const formats::HfConfig& config) {
  HeadShape global = {.head_dim = config.get_int("global_head_dim", 512, {.min = 8, .max = 1024}),
                      .kv_heads = config.num_key_value_heads};
  if (config.get_bool("attention_k_eq_v", false))
    global.kv_heads = config.get_int("num_global_key_value_heads", global.kv_heads, {.min = 1});
  return head_shapes_of(config, global);
}

void set_attention(const formats::HfConfig& config, const std::string& prefix, bool is_global,
                   const HeadShape& shape, AttentionSpec& attention) {
  attention.head_dim = shape.head_dim;
  attention.kv_heads = shape.kv_heads;
  attention.scale = 1.0f;
  attention.q_norm = NormSpec{prefix + "self_attn.q_norm.weight"};
  attention.k_norm = NormSpec{prefix + "self_attn.k_norm.weight"};
  attention.v_norm = NormSpec{};
  if (config.attention_bias) add_attention_biases(prefix, attention, /*output=*/true);
  if (!is_global || !config.get_bool("attention_k_eq_v", false)) return;
  attention.qkv_weights[2] = attention.qkv_weights[1];
  if (config.attention_bias) attention.qkv_biases[2] = attention.qkv_biases[1];
}

// Experts beside every MLP; the router reads the stream itself.
void add_experts(const formats::HfConfig& config, ModelSpec& spec) {
  const formats::ConfigReader reader = config.reader();
  const int64_t count = reader.require_int("num_experts", {.min = 1, .max = 1 << 16});
  const int64_t top_k = reader.require_int("top_k_experts", {.min = 1, .max = count});
  const int64_t intermediate =
      reader.require_int("moe_intermediate_size", {.min = 1, .max = 1 << 24});
  const float root = 1 / std::sqrt(static_cast<float>(spec.hidden));
  for_each_layer(spec, [&](size_t i, const std::string& prefix, AttentionSpec&, MlpSpec& mlp) {
    const std::string norm = prefix + "post_feedforward_layernorm_";
    MlpAndMoeSpec both = {
        .mlp = mlp,
        .moe = {.num_experts = count,
                .intermediate = intermediate,
                .route = {.top_k = top_k, .normalise = true},
                .gate = mlp.gate,
                .router = prefix + "router.proj.weight",
                .router_norm = NormSpec{.weight = prefix + "router.scale", .multiplier = root},
                .expert_scale = prefix + "router.per_expert_scale",
                .layouts = expert_layouts(prefix)},
        .mlp_output_norm = NormSpec{norm + "1.weight"},
        .moe_input_norm = NormSpec{prefix + "pre_feedforward_layernorm_2.weight"},
        .moe_output_norm = NormSpec{norm + "2.weight"}};
    spec.layers[i].ffn = std::move(both);
  });
}

}  // namespace

// Gemma 4 (model cards of google/gemma-4-*), the language model alone or inside its wrapper with
// vision and audio.
ModelSpec gemma4(const formats::HfConfig& config, int64_t max_positions) {
  check_causal(config);
  const formats::HfConfig known = known_keys(config);
  const std::vector<HeadShape> shapes = head_shapes(known);
  ModelSpec spec = dense_decoder(known, max_positions);
  spec.embed_multiplier = std::sqrt(static_cast<float>(config.hidden_size));
  spec.logits_softcap = softcap_of(config, "final_logit_softcapping", 0);
  for_each_layer(spec,
                 [&](size_t i, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
                   const bool is_global = known.layer_types[i] == kFullAttention;
                   set_attention(known, prefix, is_global, shapes[i], attention);
                   norm_inputs_and_outputs(prefix, spec.layers[i]);
                   spec.layers[i].output_scale = prefix + "layer_scalar";
                 });
  use_layer_types(known, spec, {.window = 512}, max_positions);
  const int64_t shared =
      config.get_int("num_kv_shared_layers", 0, {.min = 0, .max = config.num_hidden_layers});
  share_kv_of_last_layers(known, spec, shared, "num_kv_shared_layers");
  if (config.get_bool("use_double_wide_mlp", false))
    for_each_layer(spec, [](size_t, const std::string&, AttentionSpec& attention, MlpSpec& mlp) {
      if (attention.kv_of_layer) mlp.intermediate *= 2;  // in place of keys and values
    });
  use_layer_inputs(known, spec);
  if (config.get_bool("enable_moe_block", false)) add_experts(known, spec);
  ignore_vision(spec);
  ignore_audio(spec);
  return spec;
}

}  // namespace quire::models
