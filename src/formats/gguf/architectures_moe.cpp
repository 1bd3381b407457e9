// Architectures with experts, see architectures.cpp.
#include <string>

#include "formats/gguf/architecture_parts.h"

namespace quire::formats {
namespace {

using Translator = GgufTranslator;

constexpr IntRange kWidth{.min = 1, .max = 1 << 24};
constexpr IntRange kCount{.min = 0, .max = 1 << 16};

void add_qwen_experts(Translator& t) {
  add_experts(t, "num_experts");
  expect_gating(t, Gating::kSoftmax);
  expect_number(t, "expert_weights_scale", 1);
  t.config["moe_intermediate_size"] = expert_width(t);
}

// DeepSeek's experts: several shared ones, the first layers dense, groups.
void add_deepseek_experts(Translator& t) {
  add_experts(t, "n_routed_experts");
  json::object& config = t.config;
  config["moe_intermediate_size"] = expert_width(t);
  config["n_shared_experts"] = t.find_int("expert_shared_count", kCount).value_or(0);
  config["first_k_dense_replace"] = t.find_int("leading_dense_block_count", kCount).value_or(0);
  const double scale = t.find_factor_or_zero("expert_weights_scale").value_or(0);
  config["routed_scaling_factor"] = scale == 0 ? 1 : scale;  // 0 stands for none
  config["norm_topk_prob"] = t.find_bool("expert_weights_norm").value_or(false);
  config["n_group"] = t.find_int("expert_group_count", kCount).value_or(1);
  config["topk_group"] = t.find_int("expert_group_used_count", kCount).value_or(1);
  rename_shared_expert(t, "mlp.shared_experts.");
  t.rename_whole("exp_probs_b", "mlp.gate.e_score_correction_bias");
}

// Llama 4's chunks and the growth of its queries are not in the file, nor which layers rotate.
constexpr int64_t kLlama4Chunk = 8192;

// Whether the first layer with experts has a correction of its router.
bool has_correction(const Translator& t) {
  const int64_t first = t.find_int("leading_dense_block_count", kCount).value_or(0);
  return t.has_tensor("blk." + std::to_string(first) + ".exp_probs_b.bias");
}

bool has_experts(const Translator& t) {
  const int64_t further = t.find_int("nextn_predict_layers").value_or(0);
  return t.find_int("leading_dense_block_count", kCount).value_or(0) <
         t.require_int("block_count") - further;
}

}  // namespace

// Weights of chosen experts do not add up to one: neither the file nor llama.cpp says so.
void qwen2_moe(Translator& t) {
  t.add_decoder("Qwen2MoeForCausalLM");
  add_qwen_experts(t);
  t.config["norm_topk_prob"] = false;
  t.config["shared_expert_intermediate_size"] =
      t.require_int("expert_shared_feed_forward_length", kWidth);
  t.rename("ffn_gate_inp_shexp", "mlp.shared_expert_gate");
  rename_shared_expert(t, "mlp.shared_expert.");
}

void qwen3_moe(Translator& t) {
  t.add_decoder("Qwen3MoeForCausalLM");
  add_qwen_experts(t);
  t.config["norm_topk_prob"] = true;
}

// Heads are normed but in the model of 128 experts.
void llama4(Translator& t) {
  t.add_decoder("Llama4ForCausalLM");
  add_experts(t, "num_local_experts");
  expect_gating(t, Gating::kSigmoid);
  expect_number(t, "attention.sliding_window", kLlama4Chunk);
  json::object& config = t.config;
  config["intermediate_size_mlp"] = t.require_int("feed_forward_length", kWidth);
  config["intermediate_size"] = t.require_int("expert_feed_forward_length", kWidth);
  config["interleave_moe_layer_step"] =
      t.require_int("interleave_moe_layer_step", {.min = 1, .max = 999});
  config["use_qk_norm"] = config.at("num_local_experts") != 128;
  config["attention_chunk_size"] = config["floor_scale"] = kLlama4Chunk;
  config["attn_scale"] = 0.1;
  config["attn_temperature_tuning"] = true;
  config["no_rope_layer_interval"] = 4;
  t.rename("ffn_gate_inp", "feed_forward.router");
  for (const std::string matrix : {"gate", "up", "down"}) {
    t.rename("ffn_" + matrix, "feed_forward." + matrix + "_proj");
    t.rename("ffn_" + matrix + "_exps", "feed_forward.experts." + matrix + "_proj");
  }
  rename_shared_expert(t, "feed_forward.shared_expert.");
}

void olmoe(Translator& t) {
  t.add_decoder("OlmoeForCausalLM");
  add_experts(t, "num_experts");
  expect_gating(t, Gating::kSoftmax);
  t.config["intermediate_size"] = expert_width(t);
  t.config["norm_topk_prob"] = false;
}

void granite_moe(Translator& t) {
  add_granite(t, "GraniteMoeForCausalLM");
  add_experts(t, "num_local_experts");
  expect_gating(t, Gating::kSoftmax);
  t.config["shared_intermediate_size"] =
      t.find_int("expert_shared_feed_forward_length", {.min = 0, .max = kWidth.max}).value_or(0);
  t.rename("ffn_gate_inp", "block_sparse_moe.router.layer");
  rename_stacked_experts(t, "block_sparse_moe.");
  rename_shared_expert(t, "shared_mlp.");
  t.rename("ffn_down_shexp", "shared_mlp.output_linear");
  t.rename("ffn_gate_up_exps", "block_sparse_moe.input_linear");
}

// The factor of rotated heads is the file's, whichever set of longrope's factors is taken.
void phimoe(Translator& t) {
  t.add_decoder("PhimoeForCausalLM");
  add_window(t);
  add_experts(t, "num_local_experts");
  expect_gating(t, Gating::kSoftmax);
  t.config["intermediate_size"] = expert_width(t);
  t.config["lm_head_bias"] = t.has_tensor("output.bias");
  json::object& rope = t.config["rope_parameters"].as_object();
  if (rope.at("rope_type").as_string() == "longrope")
    rope["short_mscale"] = rope["long_mscale"] = rope.at("attention_factor");
  t.rename("ffn_gate_inp", "block_sparse_moe.gate");
  rename_stacked_experts(t, "block_sparse_moe.");
}

void minimax_m2(Translator& t) {
  t.add_decoder("MiniMaxM2ForCausalLM");
  add_experts(t, "num_local_experts");
  expect_gating(t, Gating::kSigmoid);
  t.config["intermediate_size"] = expert_width(t);
  t.rename("ffn_gate_inp", "block_sparse_moe.gate");
  t.rename_whole("exp_probs_b", "block_sparse_moe.e_score_correction_bias");
  rename_stacked_experts(t, "block_sparse_moe.");
}

void hunyuan_moe(Translator& t) {
  add_hunyuan(t, "HunYuanMoEV1ForCausalLM");
  add_experts(t, "num_experts");
  expect_gating(t, Gating::kSoftmax);
  const int64_t width = expert_width(t);
  t.config["intermediate_size"] = width;
  t.config["moe_topk"] = t.config.at("num_experts_per_tok");
  expect_number(t, "expert_shared_count", 1);
  if (t.find_int("expert_shared_feed_forward_length", kWidth).value_or(width) != width)
    t.fail("expert_shared_feed_forward_length", "differs from the other experts' length");
  t.rename("ffn_gate_inp", "mlp.gate.wg");
  rename_shared_expert(t, "mlp.shared_mlp.");
}

void ernie45_moe(Translator& t) {
  t.add_decoder("Ernie4_5_MoeForCausalLM");
  add_experts(t, "moe_num_experts");
  expect_gating(t, Gating::kSoftmax);
  t.config["moe_k"] = t.config.at("num_experts_per_tok");
  t.config["moe_intermediate_size"] = expert_width(t);
  t.config["moe_num_shared_experts"] = t.find_int("expert_shared_count", kCount).value_or(0);
  t.find_int("expert_shared_feed_forward_length");  // as the tensors have it
  t.config["moe_layer_start_index"] = t.find_int("leading_dense_block_count", kCount).value_or(0);
  t.config["moe_layer_interval"] =
      t.find_int("interleave_moe_layer_step", {.min = 1, .max = 999}).value_or(1);
  rename_shared_expert(t, "mlp.shared_experts.");
  t.rename_whole("exp_probs_b", "mlp.moe_statics.e_score_correction_bias");
}

void glm4_moe(Translator& t) {
  t.add_decoder("Glm4MoeForCausalLM");
  add_deepseek_experts(t);
  expect_gating(t, Gating::kSigmoid);
  t.config["use_qk_norm"] = t.has_tensor("blk.0.attn_q_norm.weight");
  t.rename("post_attention_norm", "post_attention_layernorm");
}

void dots1(Translator& t) {
  t.add_decoder("Dots1ForCausalLM");
  t.config["sliding_window"] = nullptr;
  add_deepseek_experts(t);
  expect_gating(t, Gating::kSigmoid);
}

// DeepSeek V2 and V3 and what is built like them, GLM-4.7-Flash among them: their routers tell them
// apart. Of files that do not say which function they have, those with a correction are V3's, and
// those without experts, which V3 takes whatever else they say of routers.
void deepseek2(Translator& t) {
  const bool is_like_v3 = has_correction(t) || !has_experts(t);
  const Gating unsaid = is_like_v3 ? Gating::kSigmoid : Gating::kSoftmax;
  const bool is_v3 = gating_of(t, unsaid) == Gating::kSigmoid;
  t.add_latent_decoder(is_v3 ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM");
  add_deepseek_experts(t);
  json::object& config = t.config;
  config["scoring_func"] = is_v3 ? "sigmoid" : "softmax";
  const bool in_groups = config.at("n_group").as_int64() > 1;
  config["topk_method"] = is_v3 ? "noaux_tc" : in_groups ? "group_limited_greedy" : "greedy";
  // Files have it times 0.1.
  json::object& rope = config["rope_parameters"].as_object();
  if (const auto factor = t.find_factor_or_zero("rope.scaling.yarn_log_multiplier"))
    rope["mscale"] = rope["mscale_all_dim"] = *factor / 0.1;
  for (const char* part : {"q_a", "q_b", "kv_b"})
    t.rename(std::string("attn_") + part, std::string("self_attn.") + part + "_proj");
  t.rename("attn_q_a_norm", "self_attn.q_a_layernorm");
  t.rename("attn_kv_a_norm", "self_attn.kv_a_layernorm");
  t.rename("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa");
  t.rename("attn_k_b", "self_attn.embed_q");
  t.rename("attn_v_b", "self_attn.unembed_out");
}

}  // namespace quire::formats
