#include <cmath>

#include "models/families/families.h"

namespace quire::models {
namespace {

// "dynamic" with an alpha is a longer base of the rotation, whatever the length.
formats::HfConfig with_longer_base(const formats::HfConfig& config) {
  formats::HfConfig known = config;
  if (config.rope.type != "dynamic") return known;
  const double alpha =
      formats::rope_reader(config.reader()).require_double("alpha", formats::kFactors);
  const auto dim = static_cast<double>(config.head_dim);
  known.rope.theta *= std::pow(alpha, dim / (dim - 2));
  known.rope.type = "default";
  return known;
}

// A number, or one for each layer; one expert if the file does not say.
std::vector<int64_t> experts_per_token(const formats::HfConfig& config) {
  const int64_t most = config.get_int("num_experts", 1, {.min = 1, .max = 1 << 16});
  std::vector<int64_t> top_k = config.reader().get_ints("moe_topk", {.min = 1, .max = most});
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  if (top_k.empty()) top_k = {1};
  if (top_k.size() == 1) top_k.resize(layers, top_k[0]);
  if (top_k.size() != layers)
    config.reader().fail("moe_topk", "must be a number, or one for each layer");
  return top_k;
}

}  // namespace

// Hunyuan 0.5B to 7B (model cards of tencent/Hunyuan-*-Instruct): norms of each query and key head
// behind the rotation.
ModelSpec hunyuan(const formats::HfConfig& config, int64_t max_positions) {
  if (config.get_bool("use_cla", false))
    config.reader().fail("use_cla", "is true; layers with keys of others are not supported");
  ModelSpec spec = llama(with_longer_base(config), max_positions);
  for_each_layer(spec, [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
    attention.q_norm = NormSpec{prefix + "self_attn.query_layernorm.weight"};
    attention.k_norm = NormSpec{prefix + "self_attn.key_layernorm.weight"};
    attention.norms_follow_rope = true;
  });
  return spec;
}

// Hunyuan-A13B (model card of tencent/Hunyuan-A13B-Instruct): with experts and a shared one.
ModelSpec hunyuan_moe(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = hunyuan(config, max_positions);
  use_plain_experts(config, spec, "mlp.", expert_layouts, {.normalise = true},
                    experts_per_token(config));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string part = "model.layers." + std::to_string(i) + ".mlp.";
    auto& moe = std::get<MoeSpec>(spec.layers[i].ffn);
    moe.router = part + "gate.wg.weight";
    moe.shared = mlp_named(part + "shared_mlp.", moe.intermediate, moe.gate);
  }
  return spec;
}

}  // namespace quire::models
