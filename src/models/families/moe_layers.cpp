#include <algorithm>

#include "base/error.h"
#include "models/families/families.h"

namespace quire::models {
namespace {

constexpr formats::IntRange kExperts{.min = 1, .max = 1 << 16};
constexpr formats::IntRange kWidth{.min = 1, .max = 1 << 24};

MlpSpec shared_expert(const std::string& prefix, int64_t intermediate) {
  return {.intermediate = intermediate,
          .gate_up_weights = {prefix + "shared_expert.gate_proj.weight",
                              prefix + "shared_expert.up_proj.weight"},
          .down_weight = prefix + "shared_expert.down_proj.weight"};
}

// One tensor a weight and expert; all experts of a layer in one tensor, gate and up stacked; and
// mlx-lm's, one tensor for each of gate, up and down.
std::vector<MoeSpec::Names> expert_layouts(const std::string& prefix) {
  return {
      {.gate_up = {prefix + "experts.*.gate_proj.weight", prefix + "experts.*.up_proj.weight"},
       .down = prefix + "experts.*.down_proj.weight"},
      {.gate_up = {prefix + "experts.gate_up_proj"}, .down = prefix + "experts.down_proj"},
      {.gate_up = {prefix + "switch_mlp.gate_proj.weight", prefix + "switch_mlp.up_proj.weight"},
       .down = prefix + "switch_mlp.down_proj.weight"}};
}

}  // namespace

void use_experts(const formats::HfConfig& config, ModelSpec& spec, const ExpertsOptions& options) {
  const formats::ConfigReader reader = config.reader();
  const auto count = reader.find_int("num_local_experts", kExperts);  // transformers 5's word
  const int64_t num_experts = count ? *count : reader.require_int("num_experts", kExperts);
  const int64_t top_k = reader.require_int("num_experts_per_tok", {.min = 1, .max = num_experts});
  const int64_t intermediate = reader.require_int("moe_intermediate_size", kWidth);
  const int64_t shared =
      config.get_int("shared_expert_intermediate_size", 0, {.min = 0, .max = kWidth.max});
  const int64_t step = config.get_int("decoder_sparse_step", 1, kExperts);
  const std::vector<int64_t> dense = reader.get_ints("mlp_only_layers");
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto layer = static_cast<int64_t>(i);
    const bool is_dense = (layer + 1) % step != 0 || std::ranges::count(dense, layer) > 0;
    if (is_dense && !options.every_layer) continue;
    const std::string& down = std::get<MlpSpec>(spec.layers[i].ffn).down_weight;
    const std::string prefix = down.substr(0, down.rfind("down_proj"));  // "model.layers.3.mlp."
    MoeSpec moe = {.num_experts = num_experts,
                   .top_k = top_k,
                   .intermediate = intermediate,
                   .normalise = options.normalise,
                   .router = prefix + "gate.weight",
                   .layouts = expert_layouts(prefix)};
    if (shared > 0) {
      moe.shared = shared_expert(prefix, shared);
      moe.shared_gate = prefix + "shared_expert_gate.weight";
    }
    spec.layers[i].ffn = std::move(moe);
  }
}

}  // namespace quire::models
