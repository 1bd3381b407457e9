#include <cmath>

#include "models/families/families.h"
#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::models {
namespace {

constexpr formats::IntRange kWidth{.min = 1, .max = 1 << 14};
// transformers' RMS norms of latent vectors have their default eps, whatever rms_norm_eps says.
constexpr float kLatentNormEps = 1e-6f;

// YaRN's mscale_all_dim multiplies scores, too, by its square.
double score_factor(const formats::RopeConfig& rope) {
  if (rope.type != "yarn" || rope.factor <= 1) return 1;
  const double factor = 0.1 * rope.mscale_all_dim.value_or(0) * std::log(rope.factor) + 1;
  return factor * factor;
}

ops::RopeParams rope_of(const formats::HfConfig& config, int64_t rotary, int64_t max_positions) {
  if (config.rope.type != "default" && config.rope.type != "yarn")
    config.reader().fail(
        "rope_type",
        "is \"" + config.rope.type + "\"; with latent attention, supported are default and yarn");
  if (config.rope.partial_rotary_factor != 1)
    config.reader().fail("partial_rotary_factor", "must be 1: qk_rope_head_dim says what rotates");
  ops::RopeParams rope = rope_params(config, config.rope, max_positions);
  rope.rotary_dim = rotary;
  return rope;
}

int64_t q_rank_of(const formats::HfConfig& config) {
  if (!states_key(config, "q_lora_rank"))
    config.reader().fail("q_lora_rank", "is missing; null says that queries have no latent vector");
  return config.get_int("q_lora_rank", 0, kWidth);
}

MlaSpec mla_of(const formats::HfConfig& config, int64_t max_positions) {
  const formats::ConfigReader reader = config.reader();
  MlaSpec mla = {.heads = config.num_attention_heads,
                 .latent = reader.require_int("kv_lora_rank", kWidth),
                 .key_dim = reader.require_int("qk_nope_head_dim", kWidth),
                 .value_dim = reader.require_int("v_head_dim", kWidth),
                 .q_rank = q_rank_of(config),
                 .rotates_neighbours = config.get_bool("rope_interleave", true),
                 .norm_eps = kLatentNormEps};
  const int64_t rotary = reader.require_int("qk_rope_head_dim", kWidth);
  mla.rope = rope_of(config, rotary, max_positions);
  mla.scale = static_cast<float>(score_factor(config.rope) /
                                 std::sqrt(static_cast<double>(mla.key_dim + rotary)));
  if (config.num_key_value_heads != config.num_attention_heads)
    reader.fail("num_key_value_heads", "must be num_attention_heads with latent attention");
  if (mla.latent % 8 != 0 || rotary % 8 != 0 || mla.latent + rotary > ops::kMaxHeadDim)
    reader.fail("kv_lora_rank", "and qk_rope_head_dim are " + std::to_string(mla.latent) + " and " +
                                    std::to_string(rotary) +
                                    "; supported are multiples of 8, together up to " +
                                    std::to_string(ops::kMaxHeadDim));
  return mla;
}

}  // namespace

void use_latent_attention(const formats::HfConfig& config, ModelSpec& spec, int64_t max_positions) {
  const MlaSpec shape = mla_of(config, max_positions);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".self_attn.";
    const auto bias = [&](const char* part) {
      return config.attention_bias ? prefix + part + ".bias" : "";
    };
    MlaSpec mla = shape;
    mla.q_a_weight = prefix + "q_a_proj.weight";
    mla.q_a_bias = bias("q_a_proj");
    mla.q_a_norm = prefix + "q_a_layernorm.weight";
    mla.q_b_weight = prefix + (mla.q_rank > 0 ? "q_b_proj.weight" : "q_proj.weight");
    mla.kv_a_weight = prefix + "kv_a_proj_with_mqa.weight";
    mla.kv_a_bias = bias("kv_a_proj_with_mqa");
    mla.kv_a_norm = prefix + "kv_a_layernorm.weight";
    mla.kv_b_weight = prefix + "kv_b_proj.weight";
    mla.key_heads_weight = prefix + "embed_q.weight";
    mla.value_heads_weight = prefix + "unembed_out.weight";
    mla.o_weight = prefix + "o_proj.weight";
    mla.o_bias = bias("o_proj");
    spec.layers[i].mixer = std::move(mla);
  }
}

}  // namespace quire::models
