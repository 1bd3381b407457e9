#include "models/families/families.h"

namespace quire::models {
namespace {

// With longrope the config states what rotated heads are multiplied by, beside each set of factors;
// the set is that of rope_params().
double mscale_of(const formats::HfConfig& config, int64_t max_positions) {
  const bool is_long = max_positions > config.rope.original_max_position_embeddings;
  return formats::rope_reader(config.reader())
      .require_double(is_long ? "long_mscale" : "short_mscale", {.min = 1e-6, .max = 1e6});
}

}  // namespace

// Phi-3.5-MoE (arXiv:2404.14219) and Phi-mini-MoE: layer norms, biases, two experts chosen one
// after the other by a sparse mixer.
ModelSpec phimoe(const formats::HfConfig& config, int64_t max_positions) {
  if (config.rope.type != "default" && config.rope.type != "longrope")
    config.reader().fail(
        "rope_type",
        "is \"" + config.rope.type + "\"; supported with Phi-3.5-MoE are default and longrope");
  require_only(config, "num_experts_per_tok", 2);
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec, [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
    if (config.sliding_window) attention.window_left = *config.sliding_window - 1;
    if (config.attention_bias) add_attention_biases(prefix, attention, /*output=*/true);
    if (config.rope.type == "longrope")
      attention.rope->attention_factor = mscale_of(config, max_positions);
  });
  use_layer_norms(spec, /*biases=*/true);
  const double jitter = config.get_double("router_jitter_noise", 0.01, {.min = 0, .max = 1});
  use_plain_experts(config, spec, "block_sparse_moe.", mixtral_layouts,
                    {.score = ops::MoeScore::kSparseMixer, .jitter = static_cast<float>(jitter)});
  if (config.get_bool("lm_head_bias", false)) spec.head_bias = "lm_head.bias";
  return spec;
}

}  // namespace quire::models
