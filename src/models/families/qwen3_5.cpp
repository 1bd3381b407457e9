#include "models/families/families.h"

namespace quire::models {

// Qwen3.5 (model cards of Qwen/Qwen3.5-*), the language model alone or inside its vision wrapper:
// each projection of a gated delta net is a tensor of its own.
ModelSpec qwen3_5(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  make_hybrid(config, spec);
  for_each_gdn(spec, [](const std::string& prefix, GdnSpec& gdn) {
    gdn.qkv_weight = prefix + "in_proj_qkv.weight";
    gdn.z_weight = prefix + "in_proj_z.weight";
    gdn.b_weight = prefix + "in_proj_b.weight";
    gdn.a_weight = prefix + "in_proj_a.weight";
  });
  return spec;
}

// Its mixtures of experts, each with a shared one, in every layer: whatever the config says of
// dense ones (mlp_only_layers, decoder_sparse_step) and of norm_topk_prob counts for older
// families.
ModelSpec qwen3_5_moe(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = qwen3_5(config, max_positions);
  use_experts(config, spec, {.normalise = true, .every_layer = true});
  return spec;
}

}  // namespace quire::models
