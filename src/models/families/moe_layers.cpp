#include <algorithm>

#include "base/error.h"
#include "models/families/families.h"

namespace quire::models {
namespace {

constexpr formats::IntRange kExperts{.min = 1, .max = 1 << 16};
constexpr formats::IntRange kWidth{.min = 1, .max = 1 << 24};
constexpr formats::RealRange kFactor{.min = 0.0, .max = 1e6};

// mlx-lm's, one tensor for each of gate, up and down; `part` is "switch_mlp." for most families.
MoeSpec::Names mlx_layout(const std::string& part) {
  return {.gate_up = {part + "gate_proj.weight", part + "up_proj.weight"},
          .down = part + "down_proj.weight"};
}

// By either of transformers' words.
int64_t num_experts_of(const formats::ConfigReader& reader) {
  auto count = reader.find_int("num_local_experts", kExperts);
  if (!count) count = reader.find_int("num_experts", kExperts);
  if (!count)
    reader.fail("num_experts", "and num_local_experts are missing; this kind of model needs one");
  return *count;
}

// noaux_tc as transformers has it.
ops::MoeRouteOptions deepseek_route(const formats::HfConfig& config, int64_t num_experts,
                                    const DeepseekDefaults& defaults) {
  const int64_t groups = config.get_int("n_group", defaults.groups, {.min = 1, .max = num_experts});
  const int64_t chosen =
      config.get_int("topk_group", defaults.chosen_groups, {.min = 1, .max = groups});
  return {
      .top_k = config.reader().require_int("num_experts_per_tok", {.min = 1, .max = num_experts}),
      .normalise = config.get_bool("norm_topk_prob", true),
      .score = ops::MoeScore::kSigmoid,
      .sum_offset = 1e-20f,
      .scale =
          static_cast<float>(config.get_double("routed_scaling_factor", defaults.scale, kFactor)),
      .groups = groups,
      .chosen_groups = chosen,
      .groups_by_two = groups > 1};
}

// Whether each layer has experts.
std::vector<bool> sparse_layers(const formats::HfConfig& config, int64_t layers, int64_t first) {
  const formats::ConfigReader reader = config.reader();
  const std::vector<std::string> types = reader.get_strings("mlp_layer_types");
  const int64_t dense = config.get_int("first_k_dense_replace", first, {.min = 0});
  if (!types.empty() && static_cast<int64_t>(types.size()) != layers)
    reader.fail("mlp_layer_types", "lists " + std::to_string(types.size()) +
                                       " layers, but num_hidden_layers is " +
                                       std::to_string(layers));
  std::vector<bool> sparse;
  for (int64_t i = 0; i < layers; ++i) {
    const std::string type = types.empty() ? (i < dense ? "dense" : "sparse") : types[i];
    if (type != "dense" && type != "sparse")
      reader.fail("mlp_layer_types",
                  "has the type \"" + type + "\"; supported are dense and sparse");
    sparse.push_back(type == "sparse");
  }
  return sparse;
}

}  // namespace

MlpSpec mlp_named(const std::string& prefix, int64_t intermediate, const ops::Gate& gate) {
  return {.intermediate = intermediate,
          .gate = gate,
          .gate_up_weights = {prefix + "gate_proj.weight", prefix + "up_proj.weight"},
          .down_weight = prefix + "down_proj.weight"};
}

// One tensor a weight and expert; or all experts of a layer in one tensor, gate and up stacked; or
// one of mlx-lm's, which is called otherwise for dots.llm1.
std::vector<MoeSpec::Names> expert_layouts(const std::string& prefix) {
  return {{.gate_up = {prefix + "experts.*.gate_proj.weight", prefix + "experts.*.up_proj.weight"},
           .down = prefix + "experts.*.down_proj.weight"},
          {.gate_up = {prefix + "experts.gate_up_proj"}, .down = prefix + "experts.down_proj"},
          mlx_layout(prefix + "switch_mlp."),
          mlx_layout(prefix + "experts."),
          mlx_layout(prefix + "experts.switch_glu.")};
}

std::vector<MoeSpec::Names> mixtral_layouts(const std::string& prefix) {
  return {{.gate_up = {prefix + "experts.*.w1.weight", prefix + "experts.*.w3.weight"},
           .down = prefix + "experts.*.w2.weight"},
          mlx_layout(prefix + "switch_mlp.")};
}

void use_plain_experts(const formats::HfConfig& config, ModelSpec& spec, const std::string& part,
                       std::vector<MoeSpec::Names> (*layouts)(const std::string& prefix),
                       ops::MoeRouteOptions route, const std::vector<int64_t>& top_k) {
  const formats::ConfigReader reader = config.reader();
  const int64_t count = num_experts_of(reader);
  if (top_k.empty())
    route.top_k = reader.require_int("num_experts_per_tok", {.min = 1, .max = count});
  set_experts(spec, 0, [&](const std::string& layer) {
    return MoeSpec{.num_experts = count,
                   .intermediate = reader.require_int("intermediate_size", kWidth),
                   .route = route,
                   .gate = gate_of(config),
                   .router = layer + part + "gate.weight",
                   .layouts = layouts(layer + part)};
  });
  for (size_t i = 0; i < top_k.size(); ++i)
    std::get<MoeSpec>(spec.layers.at(i).ffn).route.top_k = top_k[i];
}

void use_deepseek_experts(const formats::HfConfig& config, ModelSpec& spec,
                          const DeepseekDefaults& defaults) {
  const formats::ConfigReader reader = config.reader();
  const int64_t num_experts = reader.require_int("n_routed_experts", kExperts);
  const int64_t intermediate = reader.require_int("moe_intermediate_size", kWidth);
  const int64_t shared = config.get_int("n_shared_experts", defaults.shared, {.min = 0, .max = 64});
  const ops::MoeRouteOptions route = deepseek_route(config, num_experts, defaults);
  const auto layers = static_cast<int64_t>(spec.layers.size());
  const std::vector<bool> sparse = sparse_layers(config, layers, defaults.first_dense);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (!sparse[i]) continue;
    const std::string prefix = "model.layers." + std::to_string(i) + ".mlp.";
    MoeSpec moe = {.num_experts = num_experts,
                   .intermediate = intermediate,
                   .route = route,
                   .gate = gate_of(config),
                   .router = prefix + "gate.weight",
                   .correction = prefix + "gate.e_score_correction_bias",
                   .layouts = expert_layouts(prefix)};
    if (shared > 0)
      moe.shared = mlp_named(prefix + "shared_experts.", shared * intermediate, moe.gate);
    spec.layers[i].ffn = std::move(moe);
  }
}

void use_experts(const formats::HfConfig& config, ModelSpec& spec, const ExpertsOptions& options) {
  const formats::ConfigReader reader = config.reader();
  const int64_t num_experts = num_experts_of(reader);
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
                   .intermediate = intermediate,
                   .route = {.top_k = top_k, .normalise = options.normalise},
                   .gate = gate_of(config),
                   .router = prefix + "gate.weight",
                   .layouts = expert_layouts(prefix)};
    if (shared > 0) {
      moe.shared = mlp_named(prefix + "shared_expert.", shared, moe.gate);
      moe.shared_gate = prefix + "shared_expert_gate.weight";
    }
    spec.layers[i].ffn = std::move(moe);
  }
}

}  // namespace quire::models
