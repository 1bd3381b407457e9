#include "models/families/families.h"

namespace quire::models {
namespace {

// transformers' dense layout, OpenAI's own mxfp4, what mlx-lm makes of it, and what llm-compressor
// does.
std::vector<MoeSpec::Names> layouts_of(const std::string& prefix) {
  const std::string experts = prefix + "experts.";
  MoeSpec::Names dense = {.gate_up = {experts + "gate_up_proj"},
                          .down = experts + "down_proj",
                          .gate_up_biases = {experts + "gate_up_proj_bias"},
                          .down_bias = experts + "down_proj_bias",
                          .transposed = true,
                          .alternating = true};
  MoeSpec::Names blocks = dense;
  blocks.gate_up = {experts + "gate_up_proj_blocks"};
  blocks.down = experts + "down_proj_blocks";
  blocks.transposed = false;
  const MoeSpec::Names mlx = {
      .gate_up = {experts + "gate_proj.weight", experts + "up_proj.weight"},
      .down = experts + "down_proj.weight",
      .gate_up_biases = {experts + "gate_proj.bias", experts + "up_proj.bias"},
      .down_bias = experts + "down_proj.bias"};
  const MoeSpec::Names numbered = {
      .gate_up = {experts + "*.gate_proj.weight", experts + "*.up_proj.weight"},
      .down = experts + "*.down_proj.weight",
      .gate_up_biases = {experts + "*.gate_proj.bias", experts + "*.up_proj.bias"},
      .down_bias = experts + "*.down_proj.bias"};
  return {blocks, dense, mlx, numbered};
}

}  // namespace

// gpt-oss (arXiv:2508.10925): a sink beside the scores of each head, every second layer with a
// window, experts with biases behind a clamped gate.
ModelSpec gpt_oss(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec, [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
    if (config.get_bool("attention_bias", true))
      add_attention_biases(prefix, attention, /*output=*/true);
    attention.sinks = prefix + "self_attn.sinks";
  });
  use_layer_types(config, spec, {.window = 128, .full_every = 2}, max_positions);
  const formats::ConfigReader reader = config.reader();
  const int64_t count = reader.require_int("num_local_experts", {.min = 1, .max = 1 << 16});
  const int64_t top_k = reader.require_int("num_experts_per_tok", {.min = 1, .max = count});
  constexpr formats::RealRange kNumber{.min = 0, .max = 1e6, .min_inclusive = false};
  const ops::Gate gate = {
      .kind = ops::Gate::Kind::kClampedSwiglu,
      .alpha = static_cast<float>(config.get_double("swiglu_alpha", 1.702, kNumber)),
      .limit = static_cast<float>(config.get_double("swiglu_limit", 7, kNumber))};
  set_experts(spec, 0, [&](const std::string& layer) {
    const std::string prefix = layer + "mlp.";
    return MoeSpec{.num_experts = count,
                   .intermediate = reader.require_int("intermediate_size", {.min = 1}),
                   .route = {.top_k = top_k, .normalise = true},
                   .gate = gate,
                   .router = prefix + "router.weight",
                   .router_bias = prefix + "router.bias",
                   .layouts = layouts_of(prefix)};
  });
  return spec;
}

}  // namespace quire::models
