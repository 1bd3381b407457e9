#include "models/families/families.h"

namespace quire::models {
namespace {

// greedy: the best of all experts; group_limited_greedy: of the groups whose best expert is best.
ops::MoeRouteOptions route_of(const formats::HfConfig& config, const ops::MoeRouteOptions& v3,
                              int64_t num_experts) {
  ops::MoeRouteOptions route = {.top_k = v3.top_k, .scale = v3.scale};
  const std::string method = config.get_string("topk_method", "greedy");
  if (method == "greedy") return route;
  const formats::ConfigReader reader = config.reader();
  if (method != "group_limited_greedy")
    reader.fail("topk_method",
                "is \"" + method + "\"; supported are greedy and group_limited_greedy");
  route.groups = reader.require_int("n_group", {.min = 1, .max = num_experts});
  route.chosen_groups = reader.require_int("topk_group", {.min = 1, .max = route.groups});
  return route;
}

}  // namespace

// DeepSeek-V2 and V2-Lite (arXiv:2405.04434): latent attention, in the small one with queries of
// one projection; softmax routers without a correction, whose weights are not normalised. Defaults
// are those of transformers' DeepseekV2Config, which knows no other norm_topk_prob and always
// rotates neighbours.
ModelSpec deepseek_v2(const formats::HfConfig& config, int64_t max_positions) {
  require_only(config, "scoring_func", "softmax");
  require_only(config, "moe_layer_freq", 1);
  for (const char* key : {"norm_topk_prob", "mlp_bias"})
    if (config.get_bool(key, false)) config.reader().fail(key, "must be false");
  if (!config.get_bool("rope_interleave", true))
    config.reader().fail("rope_interleave", "must be true");
  ModelSpec spec = dense_decoder(config, max_positions);
  use_latent_attention(config, spec, max_positions);
  use_deepseek_experts(config, spec, {.first_dense = 0, .shared = 2});
  for (LayerSpec& layer : spec.layers) {
    auto* moe = std::get_if<MoeSpec>(&layer.ffn);
    if (!moe) continue;
    moe->route = route_of(config, moe->route, moe->num_experts);
    moe->correction.clear();
  }
  return spec;
}

}  // namespace quire::models
