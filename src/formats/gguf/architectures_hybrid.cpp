// Architectures of gated delta nets with a layer of attention here and there, see
// architectures.cpp.
#include <string>
#include <utility>

#include "formats/gguf/architecture_parts.h"

namespace quire::formats {
namespace {

using Translator = GgufTranslator;

constexpr IntRange kWidth{.min = 1, .max = 1 << 24};
constexpr IntRange kHeads{.min = 1, .max = 1 << 12};

// Which layers are delta nets: a list, or all but every so manieth one.
void add_mixer_types(Translator& t) {
  const std::string listed = t.key("attention.recurrent_layers");
  const int64_t every =
      t.find_int("full_attention_interval", {.min = 1, .max = INT32_MAX}).value_or(4);
  const std::vector<int64_t>* recurrent =
      t.metadata().has(listed) ? t.metadata().find_ints(listed) : nullptr;
  if (recurrent && static_cast<int64_t>(recurrent->size()) < t.layers())
    t.fail("attention.recurrent_layers", "lists " + std::to_string(recurrent->size()) +
                                             " layers of " + std::to_string(t.layers()));
  json::array types;
  for (int64_t i = 0; i < t.layers(); ++i) {
    const bool is_delta_net =
        recurrent ? (*recurrent)[static_cast<size_t>(i)] != 0 : (i + 1) % every != 0;
    types.push_back(is_delta_net ? "linear_attention" : "full_attention");
    // A head of q has the rows of its gate, too.
    if (!is_delta_net) t.cut_qkv(i, 2 * t.heads() * t.head_dim(), t.kv_heads() * t.head_dim());
  }
  t.config["layer_types"] = std::move(types);
}

// Sizes go under the names of Mamba's.
void add_delta_nets(Translator& t) {
  const int64_t value_heads = t.require_int("ssm.time_step_rank", kHeads);
  const int64_t values = t.require_int("ssm.inner_size", kWidth);
  if (values % value_heads != 0)
    t.fail("ssm.inner_size", "is " + std::to_string(values) + ", no multiple of the " +
                                 std::to_string(value_heads) + " heads of ssm.time_step_rank");
  t.config["linear_num_key_heads"] = t.require_int("ssm.group_count", kHeads);
  t.config["linear_num_value_heads"] = value_heads;
  t.config["linear_key_head_dim"] = t.require_int("ssm.state_size", kHeads);
  t.config["linear_value_head_dim"] = values / value_heads;
  t.config["linear_conv_kernel_dim"] = t.require_int("ssm.conv_kernel", kHeads);
  add_mixer_types(t);
  t.norms_are_complete = true;
  t.rename("post_attention_norm", "post_attention_layernorm");
  t.rename("attn_qkv", "linear_attn.in_proj_qkv");
  t.rename("attn_gate", "linear_attn.in_proj_z");
  t.rename("ssm_conv1d", "linear_attn.conv1d");
  t.rename("ssm_norm", "linear_attn.norm");
  t.rename("ssm_out", "linear_attn.out_proj");
  t.rename_whole("ssm_dt", "linear_attn.dt_bias");
  t.rename_whole("ssm_a", "linear_attn.A");
}

void add_experts_and_shared(Translator& t) {
  add_experts(t, "num_experts");
  expect_gating(t, Gating::kSoftmax);
  t.config["moe_intermediate_size"] = expert_width(t);
  t.config["norm_topk_prob"] = true;
  t.config["decoder_sparse_step"] = 1;
  t.config["mlp_only_layers"] = json::array{};
  t.config["shared_expert_intermediate_size"] =
      t.require_int("expert_shared_feed_forward_length", kWidth);
  t.rename("ffn_gate_inp_shexp", "mlp.shared_expert_gate");
  rename_shared_expert(t, "mlp.shared_expert.");
}

void add_qwen35(Translator& t, const char* architecture) {
  t.add_decoder(architecture);
  add_delta_nets(t);
  t.config["linear_heads_take_turns"] = true;
  // Which frequencies turn with which of an image's positions: in a text they are one.
  const std::string sections = t.key("rope.dimension_sections");
  if (t.metadata().has(sections)) t.metadata().find_ints(sections);
  t.rename("ssm_beta", "linear_attn.in_proj_b");
  t.rename("ssm_alpha", "linear_attn.in_proj_a");
}

}  // namespace

// Older files have the projections of a delta net in one tensor.
void qwen3_next(Translator& t) {
  t.add_decoder("Qwen3NextForCausalLM");
  add_delta_nets(t);
  add_experts_and_shared(t);
  t.rename("ssm_in", "linear_attn.in_proj_qkvz");
  t.rename("ssm_ba", "linear_attn.in_proj_ba");
}

void qwen35(Translator& t) { add_qwen35(t, "Qwen3_5ForCausalLM"); }

void qwen35_moe(Translator& t) {
  add_qwen35(t, "Qwen3_5MoeForCausalLM");
  add_experts_and_shared(t);
}

}  // namespace quire::formats
