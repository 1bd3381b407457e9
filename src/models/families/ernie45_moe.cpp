#include "models/families/families.h"

namespace quire::models {

namespace {

constexpr formats::IntRange kCount{.min = 0, .max = 1 << 16};

// ERNIE 4.5's words for what others call num_experts and num_experts_per_tok.
MoeSpec experts_of(const formats::HfConfig& config, const std::string& prefix) {
  const int64_t count = config.get_int("moe_num_experts", 64, {.min = 1, .max = kCount.max});
  const int64_t width = config.get_int("moe_intermediate_size", 1536, {.min = 1, .max = 1 << 24});
  const int64_t shared = config.get_int("moe_num_shared_experts", 2, {.min = 0, .max = 64});
  MoeSpec moe = {.num_experts = count,
                 .intermediate = width,
                 .route = {.top_k = config.get_int("moe_k", 6, {.min = 1, .max = count}),
                           .normalise = true,
                           .least_sum = static_cast<float>(
                               config.get_double("moe_norm_min", 1e-12, {.min = 0, .max = 1}))},
                 .gate = gate_of(config),
                 .router = prefix + "gate.weight",
                 .correction = prefix + "moe_statics.e_score_correction_bias",
                 .layouts = expert_layouts(prefix)};
  if (shared > 0) moe.shared = mlp_named(prefix + "shared_experts.", shared * width, moe.gate);
  return moe;
}

}  // namespace

// ERNIE 4.5 0.3B: Llama whose neighbours rotate.
ModelSpec ernie45(const formats::HfConfig& config, int64_t max_positions) {
  formats::HfConfig known = config;
  known.attention_bias = known.mlp_bias = config.get_bool("use_bias", false);
  ModelSpec spec = llama(known, max_positions);
  for_each_layer(spec, [](size_t, const std::string&, AttentionSpec& attention, MlpSpec&) {
    attention.rotates_neighbours = true;
  });
  return spec;
}

// ERNIE 4.5 21B-A3B and 300B-A47B (ERNIE 4.5 technical report, 2025): neighbours rotate; softmax
// scores with a correction; experts in a range of layers.
ModelSpec ernie45_moe(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  if (config.get_bool("use_bias", false))
    config.reader().fail("use_bias", "is true; biases are not supported");
  const int64_t last = config.get_int("moe_layer_end_index", -1, {.min = -1});
  const int64_t first = config.get_int("moe_layer_start_index", 1, kCount);
  const int64_t step = config.get_int("moe_layer_interval", 1, {.min = 1, .max = kCount.max});
  for_each_layer(spec,
                 [&](size_t i, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
                   const auto layer = static_cast<int64_t>(i);
                   attention.rotates_neighbours = true;
                   if (layer < first || (last >= 0 && layer > last) || (layer + 1) % step != 0)
                     return;
                   spec.layers[i].ffn = experts_of(config, prefix + "mlp.");
                 });
  return spec;
}

}  // namespace quire::models
