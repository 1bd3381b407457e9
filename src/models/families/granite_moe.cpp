#include "models/families/families.h"

namespace quire::models {

// Granite 3 MoE (model cards of ibm-granite): Granite with experts in every layer, a softmax over
// the chosen ones, and, in some, a shared expert that counts fully.
ModelSpec granite_moe(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = granite(config, max_positions);
  const auto layouts = [](const std::string& prefix) -> std::vector<MoeSpec::Names> {
    return {
        {.gate_up = {prefix + "input_linear.weight"}, .down = prefix + "output_linear.weight"},
        {.gate_up = {prefix + "switch_mlp.gate_proj.weight", prefix + "switch_mlp.up_proj.weight"},
         .down = prefix + "switch_mlp.down_proj.weight"},
        {.gate_up = {prefix + "input_linear.*.weight"},  // llm-compressor's
         .down = prefix + "output_linear.*.weight"}};
  };
  use_plain_experts(config, spec, "block_sparse_moe.", layouts, {.normalise = true});
  const int64_t shared = config.get_int("shared_intermediate_size", 0, {.min = 0, .max = 1 << 24});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    auto& moe = std::get<MoeSpec>(spec.layers[i].ffn);
    moe.router = prefix + "block_sparse_moe.router.layer.weight";
    if (shared > 0)
      moe.shared = MlpSpec{.intermediate = shared,
                           .gate = moe.gate,
                           .gate_up_weights = {prefix + "shared_mlp.input_linear.weight"},
                           .gate_up_apart = {prefix + "shared_mlp.gate_proj.weight",
                                             prefix + "shared_mlp.up_proj.weight"},
                           .down_weight = prefix + "shared_mlp.output_linear.weight"};
  }
  return spec;
}

}  // namespace quire::models
