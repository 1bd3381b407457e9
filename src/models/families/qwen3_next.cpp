#include "models/families/families.h"

namespace quire::models {

// Qwen3-Next (model card of Qwen/Qwen3-Next-80B-A3B-Instruct): the projections of a gated delta net
// are two tensors sorted by key head (of which GGUF files have taken one apart); experts with a
// shared one in the layers that the config says.
ModelSpec qwen3_next(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  make_hybrid(config, spec);
  for_each_gdn(spec, [](const std::string& prefix, GdnSpec& gdn) {
    gdn.qkvz_weight = prefix + "in_proj_qkvz.weight";
    gdn.qkv_weight = prefix + "in_proj_qkv.weight";
    gdn.z_weight = prefix + "in_proj_z.weight";
    gdn.ba_weight = prefix + "in_proj_ba.weight";
  });
  if (config.get_int("num_experts", 512, {.min = 0, .max = 1 << 16}) > 0)
    use_experts(config, spec, {.normalise = config.get_bool("norm_topk_prob", true)});
  return spec;
}

}  // namespace quire::models
