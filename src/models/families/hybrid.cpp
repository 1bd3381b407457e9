#include "base/error.h"
#include "models/families/families.h"

namespace quire::models {
namespace {

constexpr formats::IntRange kHeads{.min = 1, .max = 1 << 12};
constexpr formats::IntRange kDims{.min = 1, .max = 1 << 12};

// The defaults are those of transformers' configs.
GdnSpec gdn_of(const formats::HfConfig& config, const std::string& prefix) {
  GdnSpec gdn;
  gdn.k_heads = config.get_int("linear_num_key_heads", 16, kHeads);
  gdn.v_heads = config.get_int("linear_num_value_heads", 32, kHeads);
  gdn.k_dim = config.get_int("linear_key_head_dim", 128, kDims);
  gdn.v_dim = config.get_int("linear_value_head_dim", 128, kDims);
  gdn.conv_kernel = config.get_int("linear_conv_kernel_dim", 4, {.min = 2, .max = 8});
  if (gdn.v_heads % gdn.k_heads != 0) {
    config.reader().fail("linear_num_value_heads", "is " + std::to_string(gdn.v_heads) +
                                                       ", no multiple of linear_num_key_heads (" +
                                                       std::to_string(gdn.k_heads) + ")");
  }
  if (gdn.k_dim % 4 != 0 || gdn.k_dim > 256) {
    config.reader().fail("linear_key_head_dim", "is " + std::to_string(gdn.k_dim) +
                                                    "; supported are multiples of 4 up to 256");
  }
  gdn.conv_weight = prefix + "conv1d.weight";
  gdn.a_log = prefix + "A_log";
  gdn.negated_rate = prefix + "A";
  gdn.heads_take_turns = config.get_bool("linear_heads_take_turns", false);
  gdn.dt_bias = prefix + "dt_bias";
  gdn.norm = prefix + "norm.weight";
  gdn.out_weight = prefix + "out_proj.weight";
  return gdn;
}

bool is_linear_attention(const formats::HfConfig& config, int64_t layer) {
  if (config.layer_types.empty()) {
    const int64_t interval =
        config.get_int("full_attention_interval", 4, {.min = 1, .max = INT32_MAX});
    return (layer + 1) % interval != 0;
  }
  const std::string& type = config.layer_types.at(static_cast<size_t>(layer));
  if (type == "linear_attention") return true;
  if (type == "full_attention") return false;
  config.reader().fail("layer_types", "has the type \"" + type +
                                          "\"; supported are linear_attention and full_attention");
}

}  // namespace

void make_hybrid(const formats::HfConfig& config, ModelSpec& spec) {
  spec.has_zero_centred_norms = true;
  ignore_mtp_layers(config, spec);  // GGUF files have them as layers
  for (const char* name : {"mtp.*", "model.mtp.*", "language_model.mtp.*", "model.visual.*",
                           "visual.*", "vision_tower.*"})
    spec.ignored.emplace_back(name);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    auto& mixer = spec.layers.at(static_cast<size_t>(i)).mixer;
    if (is_linear_attention(config, i)) {
      mixer = gdn_of(config, prefix + "linear_attn.");
      continue;
    }
    auto& attention = std::get<AttentionSpec>(mixer);
    attention.has_output_gate = true;
    attention.rope->rotary_dim = rotary_dim_of(config, 0.25);
    attention.q_norm = NormSpec{prefix + "self_attn.q_norm.weight"};
    attention.k_norm = NormSpec{prefix + "self_attn.k_norm.weight"};
    if (config.attention_bias) add_attention_biases(prefix, attention, /*output=*/true);
  }
}

}  // namespace quire::models
