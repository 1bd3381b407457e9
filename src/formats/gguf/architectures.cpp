#include "formats/gguf/architectures.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "formats/gguf/architecture_parts.h"

// What GGUF files say of each architecture, in the words of its config.json. Sources: llama.cpp's
// converter (conversion/*.py), which writes them, and its loaders (src/models/*.cpp), which know
// what the files leave out.
namespace quire::formats {
namespace {

using Translator = GgufTranslator;

// Llama, Mistral and Mixtral alike.
void llama(Translator& t) {
  const bool is_mixture = t.find_int("expert_count", {.min = 0}).value_or(0) > 0;
  t.add_decoder(is_mixture ? "MixtralForCausalLM" : "LlamaForCausalLM");
  t.use_alternating_heads();
  if (!is_mixture) {
    t.find_int("expert_used_count");
    return;
  }
  add_experts(t, "num_local_experts");
  expect_gating(t, Gating::kSoftmax);
  t.config["sliding_window"] = nullptr;
  t.rename("ffn_gate_inp", "block_sparse_moe.gate");
  rename_stacked_experts(t, "block_sparse_moe.");
}

// Ministral 3, and Mistral Small 3.1 and later, which do not scale queries by position.
void mistral3(Translator& t) {
  const auto beta = t.find_double("attention.temperature_scale", {.min = 0, .max = 1e6});
  t.add_decoder(beta ? "Ministral3ForCausalLM" : "MistralForCausalLM");
  t.use_alternating_heads();
  t.config["sliding_window"] = nullptr;
  json::object& rope = t.config["rope_parameters"].as_object();
  // Files have one of two factors: the other is 1.
  if (const auto factor = t.find_factor_or_zero("rope.scaling.yarn_log_multiplier")) {
    rope["mscale"] = 1.0;
    rope["mscale_all_dim"] = *factor;
  }
  if (beta) rope["llama_4_scaling_beta"] = *beta;
}

void arcee(Translator& t) {
  t.add_decoder("ArceeForCausalLM");
  t.config["hidden_act"] = "relu2";
  t.use_alternating_heads();
}

// Granite 4's dense models, too, whose MLP may be as wide as what others have as a shared expert.
void granite(Translator& t) {
  add_granite(t, "GraniteForCausalLM");
  expect_number(t, "expert_count", 0);
  t.find_int("expert_used_count");
  const auto shared = t.find_int("expert_shared_feed_forward_length", {.min = 0, .max = 1 << 24});
  if (shared.value_or(0) > 0) t.config["intermediate_size"] = *shared;
}
// Granite 4's dense models may be called so, too.
void granite_mixture(Translator& t) {
  const bool is_mixture = t.find_int("expert_count", {.min = 0}).value_or(0) > 0;
  is_mixture ? granite_moe(t) : granite(t);
}
void hunyuan_dense(Translator& t) { add_hunyuan(t, "HunYuanDenseV1ForCausalLM"); }

// Which layers rotate is not in the file: three of four do.
void smollm3(Translator& t) {
  t.add_decoder("SmolLM3ForCausalLM");
  t.use_alternating_heads();
  t.config["no_rope_layer_interval"] = 4;
}

void qwen2(Translator& t) { t.add_decoder("Qwen2ForCausalLM"); }
void qwen3(Translator& t) { t.add_decoder("Qwen3ForCausalLM"); }

// A head is the embedding's always.
void gemma(Translator& t) {
  t.add_decoder("GemmaForCausalLM");
  t.config["hidden_act"] = "gelu_pytorch_tanh";
  t.norms_are_complete = true;
}

// The scale of scores is not in the file: that of a head's width, but for the largest model.
void add_gemma(Translator& t, int64_t largest_layers) {
  const json::object& config = t.config;
  const int64_t hidden = config.at("hidden_size").as_int64();
  const int64_t heads = config.at("num_attention_heads").as_int64();
  t.config["query_pre_attn_scalar"] = t.layers() == largest_layers ? hidden / heads : t.head_dim();
  t.config.erase("hidden_act");
  t.config["hidden_activation"] = "gelu_pytorch_tanh";
  t.norms_are_complete = true;
  rename_outer_norms(t, "post_attention_layernorm", "pre_feedforward_layernorm",
                     "post_feedforward_layernorm");
}

void gemma2(Translator& t) {
  t.add_decoder("Gemma2ForCausalLM");
  add_gemma(t, 46);
  t.config["sliding_window"] =
      t.find_int("attention.sliding_window", {.min = 1, .max = INT32_MAX}).value_or(4096);
  t.add_layer_types(2);
  t.config["attn_logit_softcapping"] = t.find_factor_or_zero("attn_logit_softcapping").value_or(50);
  t.config["final_logit_softcapping"] =
      t.find_factor_or_zero("final_logit_softcapping").value_or(30);
}

void gemma3(Translator& t) {
  t.add_decoder("Gemma3ForCausalLM");
  add_gemma(t, 62);
  add_window(t);
  // Without windows all layers rotate alike.
  t.add_layer_types(t.config.at("sliding_window") == 0 ? 1 : 6);
  t.add_plain_rope_of_windows(10000);
  add_cap(t, "final_logit_softcapping", "final_logit_softcapping");
}

void ernie45(Translator& t) {
  t.add_decoder("Ernie4_5ForCausalLM");
  t.config["use_bias"] = t.config.at("attention_bias");
}

// The file's window is that of no layer in llama.cpp; here it is, as in transformers.
void phi3(Translator& t) {
  t.add_decoder("Phi3ForCausalLM");
  add_window(t);
  t.rename("attn_qkv", "self_attn.qkv_proj");
  t.rename("ffn_up", "mlp.gate_up_proj");
}

// GLM-4-9B, also of the files of before it was called so.
void chatglm(Translator& t) {
  t.add_decoder("GlmForCausalLM");
  t.rename("ffn_up", "mlp.gate_up_proj");
}

void glm4(Translator& t) {
  t.add_decoder("Glm4ForCausalLM");
  rename_outer_norms(t, "post_self_attn_layernorm", "post_attention_layernorm",
                     "post_mlp_layernorm");
  t.rename("ffn_up", "mlp.gate_up_proj");
}

// Also OLMo 3, which has windows; layers that have one are not scaled.
void olmo2(Translator& t) {
  const bool has_windows = t.find_int("attention.sliding_window").value_or(0) > 0;
  t.add_decoder(has_windows ? "Olmo3ForCausalLM" : "Olmo2ForCausalLM");
  t.rename("post_attention_norm", "post_attention_layernorm");
  t.rename("post_ffw_norm", "post_feedforward_layernorm");
  if (!has_windows) return;
  add_window(t);
  t.add_layer_types(4);
  t.add_plain_rope_of_windows(
      t.config.at("rope_parameters").as_object().at("rope_theta").as_double());
}

// YaRN's bounds are not rounded to whole dimensions, which files do not say.
void gpt_oss(Translator& t) {
  t.add_decoder("GptOssForCausalLM");
  add_window(t);
  t.add_layer_types(2);
  add_experts(t, "num_local_experts");
  t.config["intermediate_size"] = expert_width(t);
  json::object& rope = t.config["rope_parameters"].as_object();
  if (rope.at("rope_type").as_string() == "yarn") rope["truncate"] = false;
  t.rename("post_attention_norm", "post_attention_layernorm");
  t.rename_whole("attn_sinks", "self_attn.sinks");
  t.rename("ffn_gate_inp", "mlp.router");
  t.rename("ffn_gate_up_exps",
           "ffn_gate_up_exps");  // no such file: rows of the family's take turns
}

void seed_oss(Translator& t) {
  t.add_decoder("SeedOssForCausalLM");
  t.config["attention_out_bias"] = t.has_tensor("blk.0.attn_output.bias");
  t.rename("post_attention_norm", "post_attention_layernorm");
}

void exaone4(Translator& t) {
  t.add_decoder("Exaone4ForCausalLM");
  t.rename("post_attention_norm", "post_attention_layernorm");
  t.rename("post_ffw_norm", "post_feedforward_layernorm");
  add_window(t);
  t.add_layer_types(4);
}

void add_cohere(Translator& t, const char* architecture) {
  t.add_decoder(architecture);
  const auto eps = t.find_double("attention.layer_norm_epsilon", kEpsilons);
  if (!eps) t.fail("attention.layer_norm_epsilon", "is missing");
  t.config["layer_norm_eps"] = *eps;
  t.config["logit_scale"] = t.find_double("logit_scale", kFactors).value_or(1);
  t.config["use_qk_norm"] = t.has_tensor("blk.0.attn_q_norm.weight");
}
void command_r(Translator& t) { add_cohere(t, "CohereForCausalLM"); }
void cohere2(Translator& t) {
  add_cohere(t, "Cohere2ForCausalLM");
  add_window(t);
  t.add_layer_types(4);
}

struct Row {
  const char* name;
  void (*translate)(Translator&);
};
constexpr Row kArchitectures[] = {
    {"arcee", arcee},
    {"chatglm", chatglm},
    {"cohere2", cohere2},
    {"command-r", command_r},
    {"deepseek2", deepseek2},
    {"dots1", dots1},
    {"ernie4_5", ernie45},
    {"ernie4_5-moe", ernie45_moe},
    {"exaone4", exaone4},
    {"gemma", gemma},
    {"gemma2", gemma2},
    {"gemma3", gemma3},
    {"gemma4", gemma4},
    {"glm4", glm4},
    {"glm4moe", glm4_moe},
    {"gpt-oss", gpt_oss},
    {"granite", granite},
    {"granitehybrid", granite_mixture},
    {"granitemoe", granite_mixture},
    {"hunyuan-dense", hunyuan_dense},
    {"hunyuan-moe", hunyuan_moe},
    {"llama", llama},
    {"llama4", llama4},
    {"minimax-m2", minimax_m2},
    {"mistral3", mistral3},
    {"olmo2", olmo2},
    {"olmoe", olmoe},
    {"phi3", phi3},
    {"phimoe", phimoe},
    {"qwen2", qwen2},
    {"qwen2moe", qwen2_moe},
    {"qwen3", qwen3},
    {"qwen35", qwen35},
    {"qwen35moe", qwen35_moe},
    {"qwen3moe", qwen3_moe},
    {"qwen3next", qwen3_next},
    {"seed_oss", seed_oss},
    {"smollm3", smollm3},
};

}  // namespace

void add_granite(GgufTranslator& t, const char* architecture) {
  // Granite 4's files say how large mamba layers are even where no layer is one.
  const std::string kv_heads = t.key("attention.head_count_kv");
  const GgufValue* value = t.metadata().find(kv_heads);
  if (value && std::holds_alternative<std::vector<int64_t>>(value->value) &&
      std::ranges::count(*t.metadata().find_ints(kv_heads), 0) > 0)
    t.fail("attention.head_count_kv", "is 0 in some layers: mamba layers are not supported");
  for (const char* name : {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.inner_size",
                           "ssm.time_step_rank"})
    t.find_int(name);
  t.add_decoder(architecture);
  t.use_alternating_heads();
  const std::pair<const char*, const char*> kScales[] = {
      {"attention.scale", "attention_multiplier"},
      {"embedding_scale", "embedding_multiplier"},
      {"residual_scale", "residual_multiplier"},
      {"logit_scale", "logits_scaling"}};
  for (const auto& [gguf, hugging_face] : kScales)
    if (const auto scale = t.find_double(gguf, kFactors)) t.config[hugging_face] = *scale;
  if (!t.config.contains("attention_multiplier"))
    t.config["attention_multiplier"] = 1 / std::sqrt(static_cast<double>(t.head_dim()));
  if (!t.find_bool("rope.scaling.finetuned").value_or(true))
    t.fail("rope.scaling.finetuned", "is false: layers without rotation are not supported here");
}

// The base of the rotation is that of long contexts already.
void add_hunyuan(GgufTranslator& t, const char* architecture) {
  t.add_decoder(architecture);
  t.rename("attn_q_norm", "self_attn.query_layernorm");
  t.rename("attn_k_norm", "self_attn.key_layernorm");
}

void translate_architecture(GgufTranslator& translator) {
  const GgufMetadata& metadata = translator.metadata();
  const std::string type = metadata.find_string("general.type").value_or("model");
  if (type != "model")
    metadata.fail("general.type", "is " + quote_name(type) + "; only a \"model\" can be served");
  const std::string name = metadata.require_string("general.architecture");
  std::string list;
  for (const Row& row : kArchitectures) {
    if (name == row.name) return row.translate(translator);
    list += (list.empty() ? "" : ", ") + std::string(row.name);
  }
  metadata.fail("general.architecture",
                "is " + quote_name(name) + "; supported in GGUF files are " + list);
}

}  // namespace quire::formats
