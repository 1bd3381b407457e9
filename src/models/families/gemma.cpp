#include <cmath>

#include "models/families/families.h"

namespace quire::models {
namespace {

void check_causal(const formats::HfConfig& config) {
  if (config.get_bool("use_bidirectional_attention", false))
    config.reader().fail("use_bidirectional_attention",
                         "is true; only causal models are supported");
}

// What Gemma 2 and 3 share: norms around zero on both sides of each part, gelu, embeddings times
// the root of their width, scores scaled by a number of the config, alternating windows.
ModelSpec gemma(const formats::HfConfig& config, const LayerTypes& types, int64_t max_positions) {
  formats::HfConfig known = config;
  known.hidden_act = config.get_string("hidden_activation", "gelu_pytorch_tanh");
  check_causal(config);
  ModelSpec spec = dense_decoder(known, max_positions);
  spec.has_zero_centred_norms = true;
  spec.embed_multiplier = std::sqrt(static_cast<float>(config.hidden_size));
  const double scalar = config.get_double("query_pre_attn_scalar", 256, formats::kFactors);
  for_each_layer(spec,
                 [&](size_t layer, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
                   norm_inputs_and_outputs(prefix, spec.layers[layer]);
                   attention.scale = static_cast<float>(1 / std::sqrt(scalar));
                   if (config.attention_bias)
                     add_attention_biases(prefix, attention, /*output=*/true);
                 });
  use_layer_types(known, spec, types, max_positions);
  return spec;
}

// "gelu" in the first published files is the approximation, too.
formats::HfConfig known_keys(const formats::HfConfig& config) {
  formats::HfConfig known = config;
  known.hidden_act = config.get_string("hidden_act", "gelu");
  if (known.hidden_act == "gelu") known.hidden_act = "gelu_pytorch_tanh";
  return known;
}

}  // namespace

// Gemma (arXiv:2403.08295) and CodeGemma: norms around zero, gelu, embeddings times the root of
// their width.
ModelSpec gemma1(const formats::HfConfig& config, int64_t max_positions) {
  check_causal(config);
  ModelSpec spec = dense_decoder(known_keys(config), max_positions);
  spec.has_zero_centred_norms = true;
  spec.embed_multiplier = std::sqrt(static_cast<float>(config.hidden_size));
  for_each_layer(spec, [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
    if (config.attention_bias) add_attention_biases(prefix, attention, /*output=*/true);
  });
  return spec;
}

// Gemma 2 (arXiv:2408.00118): scores and logits are capped.
ModelSpec gemma2(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = gemma(config, {.window = 4096, .full_every = 2}, max_positions);
  spec.logits_softcap = softcap_of(config, "final_logit_softcapping", 30);
  const float cap = softcap_of(config, "attn_logit_softcapping", 50);
  for_each_layer(spec, [&](size_t, const std::string&, AttentionSpec& attention, MlpSpec&) {
    attention.softcap = cap;
  });
  return spec;
}

// Gemma 3 (arXiv:2503.19786), the language model alone or inside its vision wrapper: norms of query
// and key heads instead of the caps; layers with a window have a rope of their own.
ModelSpec gemma3(const formats::HfConfig& config, int64_t max_positions) {
  const int64_t pattern = config.get_int("sliding_window_pattern", 6, {.min = 1});
  ModelSpec spec = gemma(config, {.window = 4096, .full_every = pattern}, max_positions);
  spec.logits_softcap = softcap_of(config, "final_logit_softcapping", 0);
  if (softcap_of(config, "attn_logit_softcapping", 0) > 0)
    config.reader().fail("attn_logit_softcapping", "is not null; Gemma 3 norms heads instead");
  for_each_layer(spec, [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
    attention.q_norm = NormSpec{prefix + "self_attn.q_norm.weight"};
    attention.k_norm = NormSpec{prefix + "self_attn.k_norm.weight"};
  });
  ignore_vision(spec);
  return spec;
}

}  // namespace quire::models
