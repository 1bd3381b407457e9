#include <algorithm>

#include "models/families/families.h"

namespace quire::models {
namespace {

// transformers' dense layout, mlx-lm's, and llm-compressor's.
std::vector<MoeSpec::Names> layouts_of(const std::string& part) {
  const std::string experts = part + "experts.";
  return {
      {.gate_up = {experts + "gate_up_proj"}, .down = experts + "down_proj", .transposed = true},
      {.gate_up = {experts + "gate_proj.weight", experts + "up_proj.weight"},
       .down = experts + "down_proj.weight"},
      {.gate_up = {experts + "*.gate_proj.weight", experts + "*.up_proj.weight"},
       .down = experts + "*.down_proj.weight"}};
}

}  // namespace

// Llama 4 (model cards of meta-llama/Llama-4-*), the language model alone or inside its vision
// wrapper: layers that rotate see a chunk of the context and norm heads; the others see all, and
// their queries grow with the position; experts of weighed inputs beside a shared one.
ModelSpec llama4(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = llama(config, max_positions);
  const std::vector<bool> rotates = rotating_layers(config);
  use_chunks(config, spec, rotates);
  const int64_t step = config.get_int("interleave_moe_layer_step", 1, {.min = 1});
  const std::vector<int64_t> listed = config.reader().get_ints("moe_layers");
  const bool lists = config.reader().find("moe_layers") != nullptr;
  const bool tunes = is_on(config, "attn_temperature_tuning", true);
  const PositionScaleSpec q_scale = {
      .beta = config.get_double("attn_scale", 0.1, {.min = 0, .max = 1e6}),
      .length = config.get_int("floor_scale", 8192, {.min = 1}),
      .offset = 1};
  const int64_t dense_width = config.get_int("intermediate_size_mlp", 16384, {.min = 1});
  use_plain_experts(config, spec, "feed_forward.", layouts_of, {.score = ops::MoeScore::kSigmoid});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    attention.rotates_neighbours = true;
    if (!rotates[i]) attention.rope.reset();
    if (!rotates[i] && tunes) attention.q_scale = q_scale;
    if (rotates[i] && config.get_bool("use_qk_norm", true)) {
      attention.q_norm = attention.k_norm = NormSpec{};
      // Behind the rotation, which changes no norm unless the rope has a factor of its own.
      attention.norms_follow_rope = config.rope.type == "yarn" || config.rope.type == "longrope";
    }
    auto& moe = std::get<MoeSpec>(spec.layers[i].ffn);
    const std::string part = "model.layers." + std::to_string(i) + ".feed_forward.";
    moe.weigh_input = true;
    moe.router = part + "router.weight";
    moe.shared = mlp_named(part + "shared_expert.", moe.intermediate, moe.gate);
    const auto layer = static_cast<int64_t>(i);
    if (lists ? std::ranges::count(listed, layer) > 0 : (layer + 1) % step == 0) continue;
    spec.layers[i].ffn = mlp_named(part, dense_width, moe.gate);
  }
  ignore_vision(spec);
  return spec;
}

}  // namespace quire::models
