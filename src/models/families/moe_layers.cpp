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
ops::MoeRouteOptions deepseek_route(const formats::HfConfig& config, int64_t num_experts) {
  const int64_t groups = config.get_int("n_group", 1, {.min = 1, .max = num_experts});
  return {
      .top_k = config.reader().require_int("num_experts_per_tok", {.min = 1, .max = num_experts}),
      .normalise = config.get_bool("norm_topk_prob", true),
      .score = ops::MoeScore::kSigmoid,
      .sum_offset = 1e-20f,
      .scale = static_cast<float>(config.get_double("routed_scaling_factor", 1.0, kFactor)),
      .groups = groups,
      .chosen_groups = config.get_int("topk_group", 1, {.min = 1, .max = groups}),
      .groups_by_two = groups > 1};
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
          mlx_layout(prefix + "experts.")};
}

std::vector<MoeSpec::Names> mixtral_layouts(const std::string& prefix) {
  return {{.gate_up = {prefix + "experts.*.w1.weight", prefix + "experts.*.w3.weight"},
           .down = prefix + "experts.*.w2.weight"},
          mlx_layout(prefix + "switch_mlp.")};
}

void use_plain_experts(const formats::HfConfig& config, ModelSpec& spec, const std::string& part,
                       std::vector<MoeSpec::Names> (*layouts)(const std::string& prefix),
                       ops::MoeRouteOptions route) {
  const formats::ConfigReader reader = config.reader();
  const int64_t count = num_experts_of(reader);
  route.top_k = reader.require_int("num_experts_per_tok", {.min = 1, .max = count});
  set_experts(spec, 0, [&](const std::string& layer) {
    return MoeSpec{.num_experts = count,
                   .intermediate = reader.require_int("intermediate_size", kWidth),
                   .route = route,
                   .gate = gate_of(config),
                   .router = layer + part + "gate.weight",
                   .layouts = layouts(layer + part)};
  });
}

void use_deepseek_experts(const formats::HfConfig& config, ModelSpec& spec) {
  const formats::ConfigReader reader = config.reader();
  const int64_t num_experts = reader.require_int("n_routed_experts", kExperts);
  const int64_t intermediate = reader.require_int("moe_intermediate_size", kWidth);
  const int64_t shared = config.get_int("n_shared_experts", 1, {.min = 0, .max = 64});
  const ops::MoeRouteOptions route = deepseek_route(config, num_experts);
  const auto layers = static_cast<int64_t>(spec.layers.size());
  const int64_t dense = config.get_int("first_k_dense_replace", 1, {.min = 0, .max = layers});
  set_experts(spec, dense, [&](const std::string& layer) {
    const std::string prefix = layer + "mlp.";
    MoeSpec moe = {.num_experts = num_experts,
                   .intermediate = intermediate,
                   .route = route,
                   .gate = gate_of(config),
                   .router = prefix + "gate.weight",
                   .correction = prefix + "gate.e_score_correction_bias",
                   .layouts = expert_layouts(prefix)};
    if (shared > 0)
      moe.shared = mlp_named(prefix + "shared_experts.", shared * intermediate, moe.gate);
    return moe;
  });
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
