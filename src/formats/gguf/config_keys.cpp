#include "formats/gguf/config_keys.h"

#include <utility>

namespace quire::formats {
namespace {

constexpr std::pair<const char*, const char*> kKeys[] = {
    {"first_k_dense_replace", "leading_dense_block_count"},
    {"head_dim", "attention.key_length"},
    {"hidden_size", "embedding_length"},
    {"intermediate_size", "feed_forward_length"},
    {"kv_lora_rank", "attention.kv_lora_rank"},
    {"linear_conv_kernel_dim", "ssm.conv_kernel"},
    {"linear_key_head_dim", "ssm.state_size"},
    {"linear_num_key_heads", "ssm.group_count"},
    {"linear_num_value_heads", "ssm.time_step_rank"},
    {"linear_value_head_dim", "ssm.inner_size"},
    {"max_position_embeddings", "context_length"},
    {"moe_intermediate_size", "expert_feed_forward_length"},
    {"n_group", "expert_group_count"},
    {"n_routed_experts", "expert_count"},
    {"norm_topk_prob", "expert_weights_norm"},
    {"num_attention_heads", "attention.head_count"},
    {"num_experts", "expert_count"},
    {"num_experts_per_tok", "expert_used_count"},
    {"num_hidden_layers", "block_count"},
    {"num_key_value_heads", "attention.head_count_kv"},
    {"num_local_experts", "expert_count"},
    {"partial_rotary_factor", "rope.dimension_count"},
    {"q_lora_rank", "attention.q_lora_rank"},
    {"qk_nope_head_dim", "attention.key_length_mla"},
    {"qk_rope_head_dim", "rope.dimension_count"},
    {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
    {"rope_parameters.attention_factor", "rope.scaling.attn_factor"},
    {"rope_parameters.beta_fast", "rope.scaling.yarn_beta_fast"},
    {"rope_parameters.beta_slow", "rope.scaling.yarn_beta_slow"},
    {"rope_parameters.factor", "rope.scaling.factor"},
    {"rope_parameters.original_max_position_embeddings", "rope.scaling.original_context_length"},
    {"rope_parameters.partial_rotary_factor", "rope.dimension_count"},
    {"rope_parameters.rope_theta", "rope.freq_base"},
    {"rope_parameters.rope_type", "rope.scaling.type"},
    {"routed_scaling_factor", "expert_weights_scale"},
    {"scoring_func", "expert_gating_func"},
    {"shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
    {"sliding_window", "attention.sliding_window"},
    {"topk_group", "expert_group_used_count"},
    {"v_head_dim", "attention.value_length_mla"},
};

}  // namespace

KeyNames gguf_keys_of_config(const std::string& architecture) {
  KeyNames out;
  for (const auto& [config, gguf] : kKeys) out[config] = architecture + "." + gguf;
  return out;
}

}  // namespace quire::formats
