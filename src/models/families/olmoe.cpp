#include "models/families/families.h"

namespace quire::models {

// OLMoE (arXiv:2409.02060): q and k normed as whole rows, experts in every layer.
ModelSpec olmoe(const formats::HfConfig& config, int64_t max_positions) {
  if (config.reader().find_double("clip_qkv"))
    config.reader().fail("clip_qkv",
                         "is a number; clipped queries, keys and values are not "
                         "supported");
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec, [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
    attention.q_norm = NormSpec{prefix + "self_attn.q_norm.weight"};
    attention.k_norm = NormSpec{prefix + "self_attn.k_norm.weight"};
    attention.norms_span_heads = true;
    if (config.attention_bias) add_attention_biases(prefix, attention, /*output=*/true);
  });
  const ops::MoeRouteOptions route = {.normalise = config.get_bool("norm_topk_prob", false)};
  use_plain_experts(config, spec, "mlp.", expert_layouts, route);
  return spec;
}

}  // namespace quire::models
