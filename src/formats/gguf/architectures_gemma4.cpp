// Gemma 4, see architectures.cpp: its layers differ in more than their windows.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/gguf/architecture_parts.h"

namespace quire::formats {
namespace {

using Translator = GgufTranslator;

constexpr IntRange kWidth{.min = 1, .max = 1 << 24};
constexpr IntRange kHeadDim{.min = 1, .max = 1 << 14};
constexpr IntRange kHeads{.min = 1, .max = 1 << 16};

// How many frequencies turn: the first ones have the factor 1, the others one so large that they
// stand still. Without factors all turn.
int64_t turning_frequencies(Translator& t, int64_t head_dim) {
  constexpr const char* kTensor = "rope_freqs.weight";
  const auto factors = t.take_floats(kTensor);
  if (!factors) return head_dim / 2;
  const auto first = std::ranges::find_if(*factors, [](double x) { return x != 1; });
  const bool others_stand = std::all_of(first, factors->end(), [](double x) { return x >= 1e20; });
  if (!others_stand || static_cast<int64_t>(factors->size()) != head_dim / 2)
    throw LoadError(t.metadata().file() + ": tensor " + kTensor +
                    " is not half a head's factors, which are 1 and then 1e30");
  return first - factors->begin();
}

void add_ropes(Translator& t, int64_t turning, int64_t window_head_dim) {
  json::object& config = t.config;
  // No model of the family scales its rope, and this one has no place for it.
  if (config.at("rope_parameters").at("rope_type") != "default")
    t.fail("rope.scaling.factor", "is not 1, which is not supported");
  json::object full{{"rope_type", "proportional"}};
  full["rope_theta"] = config.at("rope_parameters").at("rope_theta");
  full["partial_rotary_factor"] = Translator::share_of(2 * turning, t.head_dim());
  const int64_t rotary = t.find_int("rope.dimension_count_swa", kHeadDim).value_or(window_head_dim);
  if (rotary > window_head_dim)
    t.fail("rope.dimension_count_swa", "is more than attention.key_length_swa");
  json::object windows{{"rope_type", "default"}};
  windows["rope_theta"] =
      t.find_double("rope.freq_base_swa", {.min = 1, .max = kFactors.max}).value_or(10000);
  windows["partial_rotary_factor"] = Translator::share_of(rotary, window_head_dim);
  config["rope_parameters"] =
      json::object{{"full_attention", std::move(full)}, {"sliding_attention", std::move(windows)}};
}

// Heads of layers with a window are the config's, those of the others stand for each layer.
void add_heads_of_layers(Translator& t, int64_t window_head_dim) {
  const std::vector<int64_t> kv_heads = t.ints_by_layer("attention.head_count_kv", kHeads);
  json::object others;
  for (int64_t i = 0; i < t.layers(); ++i) {
    const int64_t heads = kv_heads[static_cast<size_t>(i)];
    const bool has_window =
        t.config.at("layer_types").at(static_cast<size_t>(i)) == "sliding_attention";
    const int64_t dim = has_window ? window_head_dim : t.head_dim();
    t.cut_qkv(i, t.heads() * dim, heads * dim);
    if (!has_window)
      others[std::to_string(i)] =
          json::object{{"head_dim", t.head_dim()}, {"num_key_value_heads", heads}};
    else if (t.config.contains("num_key_value_heads") &&
             t.config.at("num_key_value_heads") != heads)
      t.fail("attention.head_count_kv", "differs between layers that have a window");
    else
      t.config["num_key_value_heads"] = heads;
  }
  // A model without windows has no use for it.
  if (!t.config.contains("num_key_value_heads")) t.config["num_key_value_heads"] = kv_heads.front();
  t.config["head_dim"] = window_head_dim;
  t.config["per_layer_config"] = std::move(others);
}

// The last layers read the keys and values of others, and some models' have a wider MLP for that.
void add_shared_layers(Translator& t) {
  const int64_t shared =
      t.find_int("attention.shared_kv_layers", {.min = 0, .max = t.layers()}).value_or(0);
  t.config["num_kv_shared_layers"] = shared;
  const std::vector<int64_t> widths = t.ints_by_layer("feed_forward_length", kWidth);
  const bool is_wide = widths.back() != widths.front();
  t.config["use_double_wide_mlp"] = is_wide;
  for (int64_t i = 0; i < t.layers(); ++i) {
    const bool is_twice = is_wide && i >= t.layers() - shared;
    if (widths[static_cast<size_t>(i)] != (is_twice ? 2 : 1) * widths.front())
      t.fail("feed_forward_length",
             "differs otherwise than by twice the width in attention.shared_kv_layers");
  }
}

// Layers without a window whose keys are their values have no tensor for these.
bool keys_are_values(const Translator& t) {
  const int64_t own = t.layers() - t.config.at("num_kv_shared_layers").as_int64();
  for (int64_t i = 0; i < own; ++i)
    if (t.config.at("layer_types").at(static_cast<size_t>(i)) != "sliding_attention")
      return !t.has_tensor("blk." + std::to_string(i) + ".attn_v.weight");
  return false;
}

void add_layer_inputs(Translator& t) {
  const int64_t width =
      t.find_int("embedding_length_per_layer_input", {.min = 0, .max = 1 << 16}).value_or(0);
  t.config["hidden_size_per_layer_input"] = width;
  if (const RawTensor* rows = t.find_tensor("per_layer_token_embd.weight"); rows && width > 0)
    t.config["vocab_size_per_layer_input"] = rows->shape.front();
  t.rename("inp_gate", "per_layer_input_gate");
  t.rename("proj", "per_layer_projection");
  t.rename("post_norm", "post_per_layer_input_norm");
}

void add_experts_beside(Translator& t) {
  const int64_t experts = t.find_int("expert_count", {.min = 0, .max = 1 << 16}).value_or(0);
  const auto width = t.find_int("expert_feed_forward_length", {.min = 0, .max = kWidth.max});
  const auto used = t.find_int("expert_used_count", {.min = 0, .max = experts});
  t.config["enable_moe_block"] = experts > 0;
  if (experts == 0) return;
  expect_gating(t, Gating::kSoftmax);
  if (!width || !used) t.fail("expert_count", "stands without the experts' width or use");
  t.config["num_experts"] = experts;
  t.config["top_k_experts"] = *used;
  t.config["moe_intermediate_size"] = *width;
  t.rename("ffn_gate_inp", "router.proj");
  t.rename_whole("ffn_gate_inp.scale", "router.scale");
  t.rename_whole("ffn_down_exps.scale", "router.per_expert_scale");
  t.rename_whole("ffn_gate_up_exps", "experts.gate_up_proj");
  for (const std::string matrix : {"gate", "up", "down"})
    t.rename("ffn_" + matrix + "_exps", "experts." + matrix + "_proj");
  t.rename("post_ffw_norm_1", "post_feedforward_layernorm_1");
  t.rename("pre_ffw_norm_2", "pre_feedforward_layernorm_2");
  t.rename("post_ffw_norm_2", "post_feedforward_layernorm_2");
}

}  // namespace

void gemma4(Translator& t) {
  for (const char* name : {"attention.head_count_kv", "feed_forward_length"})
    t.allow_by_layer(name);
  const int64_t head_dim = t.require_int("attention.key_length", kHeadDim);
  const int64_t turning = turning_frequencies(t, head_dim);
  t.add_decoder("Gemma4ForCausalLM");
  t.config.erase("num_key_value_heads");
  const int64_t window_head_dim = t.require_int("attention.key_length_swa", kHeadDim);
  if (t.require_int("attention.value_length_swa", kHeadDim) != window_head_dim)
    t.fail("attention.value_length_swa", "differs from attention.key_length_swa");
  t.config.erase("hidden_act");
  t.config["hidden_activation"] = "gelu_pytorch_tanh";
  add_window(t);
  t.add_layer_types(6);
  add_heads_of_layers(t, window_head_dim);
  add_ropes(t, turning, window_head_dim);
  add_shared_layers(t);
  t.config["attention_k_eq_v"] = keys_are_values(t);
  add_cap(t, "final_logit_softcapping", "final_logit_softcapping");
  add_layer_inputs(t);
  rename_outer_norms(t, "post_attention_layernorm", "pre_feedforward_layernorm",
                     "post_feedforward_layernorm");
  t.rename_whole("layer_output_scale", "layer_scalar");
  add_experts_beside(t);
}

}  // namespace quire::formats
