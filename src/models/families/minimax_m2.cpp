#include "models/families/families.h"

namespace quire::models {

// MiniMax-M2 (model cards of MiniMaxAI/MiniMax-M2*): q and k normed as whole rows, part of each
// head rotates, sigmoid scores with a correction; its parts that predict several tokens are
// skipped.
ModelSpec minimax_m2(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  // Published files say it in dimensions, transformers' as a share.
  const int64_t rotary =
      config.get_int("rotary_dim", rotary_dim_of(config, 1.0), {.min = 2, .max = config.head_dim});
  for_each_layer(spec, [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
    attention.q_norm = NormSpec{prefix + "self_attn.q_norm.weight"};
    attention.k_norm = NormSpec{prefix + "self_attn.k_norm.weight"};
    attention.norms_span_heads = true;
    attention.rope->rotary_dim = rotary;
  });
  use_plain_experts(config, spec, "block_sparse_moe.", mixtral_layouts,
                    {.normalise = true, .score = ops::MoeScore::kSigmoid});
  for (LayerSpec& layer : spec.layers) {
    auto& moe = std::get<MoeSpec>(layer.ffn);
    const std::string prefix = moe.router.substr(0, moe.router.rfind("gate.weight"));
    moe.correction = prefix + "e_score_correction_bias";
  }
  spec.ignored.emplace_back("model.mtp*");
  return spec;
}

}  // namespace quire::models
