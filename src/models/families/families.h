#pragma once
#include "formats/hf_config.h"
#include "models/layer_spec.h"

namespace quire::models {

// One function a family: config facts in, layers and weight names out. See registry.cpp for the
// architectures.
ModelSpec arcee(const formats::HfConfig& config, int64_t max_positions);
ModelSpec cohere(const formats::HfConfig& config, int64_t max_positions);
ModelSpec cohere2(const formats::HfConfig& config, int64_t max_positions);
ModelSpec deepseek_v2(const formats::HfConfig& config, int64_t max_positions);
ModelSpec deepseek_v3(const formats::HfConfig& config, int64_t max_positions);
ModelSpec dots1(const formats::HfConfig& config, int64_t max_positions);
ModelSpec ernie45(const formats::HfConfig& config, int64_t max_positions);
ModelSpec ernie45_moe(const formats::HfConfig& config, int64_t max_positions);
ModelSpec exaone4(const formats::HfConfig& config, int64_t max_positions);
ModelSpec gemma1(const formats::HfConfig& config, int64_t max_positions);
ModelSpec gemma2(const formats::HfConfig& config, int64_t max_positions);
ModelSpec gemma3(const formats::HfConfig& config, int64_t max_positions);
ModelSpec gemma4(const formats::HfConfig& config, int64_t max_positions);
ModelSpec glm(const formats::HfConfig& config, int64_t max_positions);
ModelSpec glm4(const formats::HfConfig& config, int64_t max_positions);
ModelSpec glm4_moe(const formats::HfConfig& config, int64_t max_positions);
ModelSpec glm4_moe_lite(const formats::HfConfig& config, int64_t max_positions);
ModelSpec gpt_oss(const formats::HfConfig& config, int64_t max_positions);
ModelSpec granite(const formats::HfConfig& config, int64_t max_positions);
ModelSpec granite_hybrid(const formats::HfConfig& config, int64_t max_positions);
ModelSpec granite_moe(const formats::HfConfig& config, int64_t max_positions);
ModelSpec helium(const formats::HfConfig& config, int64_t max_positions);
ModelSpec hunyuan(const formats::HfConfig& config, int64_t max_positions);
ModelSpec hunyuan_moe(const formats::HfConfig& config, int64_t max_positions);
ModelSpec llama(const formats::HfConfig& config, int64_t max_positions);
ModelSpec llama4(const formats::HfConfig& config, int64_t max_positions);
ModelSpec minimax_m2(const formats::HfConfig& config, int64_t max_positions);
ModelSpec ministral(const formats::HfConfig& config, int64_t max_positions);
ModelSpec ministral3(const formats::HfConfig& config, int64_t max_positions);
ModelSpec mistral(const formats::HfConfig& config, int64_t max_positions);
ModelSpec mistral3(const formats::HfConfig& config, int64_t max_positions);
ModelSpec mixtral(const formats::HfConfig& config, int64_t max_positions);
ModelSpec olmo2(const formats::HfConfig& config, int64_t max_positions);
ModelSpec olmo3(const formats::HfConfig& config, int64_t max_positions);
ModelSpec olmoe(const formats::HfConfig& config, int64_t max_positions);
ModelSpec phi3(const formats::HfConfig& config, int64_t max_positions);
ModelSpec phimoe(const formats::HfConfig& config, int64_t max_positions);
ModelSpec qwen2(const formats::HfConfig& config, int64_t max_positions);
ModelSpec qwen2_moe(const formats::HfConfig& config, int64_t max_positions);
ModelSpec qwen3(const formats::HfConfig& config, int64_t max_positions);
ModelSpec qwen3_5(const formats::HfConfig& config, int64_t max_positions);
ModelSpec qwen3_5_moe(const formats::HfConfig& config, int64_t max_positions);
ModelSpec qwen3_moe(const formats::HfConfig& config, int64_t max_positions);
ModelSpec qwen3_next(const formats::HfConfig& config, int64_t max_positions);
ModelSpec seed_oss(const formats::HfConfig& config, int64_t max_positions);
ModelSpec smollm3(const formats::HfConfig& config, int64_t max_positions);

// What these families share: pre-norm layers of attention and a gated MLP, named as in Llama
// checkpoints, without biases or windows; the rope of a layer is that of its layer type, if the
// config knows types. A family starts from it and changes what differs.
ModelSpec dense_decoder(const formats::HfConfig& config, int64_t max_positions);

// Visits the attention (or MLP) spec of each layer with its index and weight prefix
// ("model.layers.3.").
template <class F>
void for_each_layer(ModelSpec& spec, F&& f) {
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    f(i, "model.layers." + std::to_string(i) + ".", std::get<AttentionSpec>(spec.layers[i].mixer),
      std::get<MlpSpec>(spec.layers[i].ffn));
  }
}

// The gate that hidden_act names. Throws LoadError naming the key for any other.
ops::Gate gate_of(const formats::HfConfig& config);

// The config's rope facts as the op wants them, for heads of head_dim dimensions (0: the config's).
ops::RopeParams rope_params(const formats::HfConfig& config, const formats::RopeConfig& rope,
                            int64_t max_positions, int64_t head_dim = 0);

// Windows and ropes of layers by their types, for families that mix sliding_attention and
// full_attention. Where the config lists no types, every full_every-th layer is full.
struct LayerTypes {
  int64_t window = 0;  // tokens, if the config does not say; 0: none
  int64_t full_every = 1;
};
void use_layer_types(const formats::HfConfig& config, ModelSpec& spec, const LayerTypes& types,
                     int64_t max_positions);

// The types of layers that there are.
inline constexpr const char* kSlidingAttention = "sliding_attention";
inline constexpr const char* kFullAttention = "full_attention";

// Heads of a layer's own.
struct HeadShape {
  int64_t head_dim = 0, kv_heads = 0;
};
// Of each layer: the config's, `full` where layer_types says full_attention, or what
// per_layer_config says, which transformers 5 writes in place of other keys. Throws LoadError
// naming a key there that is about something else than heads.
std::vector<HeadShape> head_shapes_of(const formats::HfConfig& config, const HeadShape& full);

// One number a layer (no_rope_layers), 0 where nothing rotates; without them it is every so manieth
// layer (no_rope_layer_interval, or 4).
std::vector<bool> rotating_layers(const formats::HfConfig& config);

// Layers of the type chunked_attention (those that rotate, if the config lists no types) see the
// chunk of attention_chunk_size positions that they are in.
void use_chunks(const formats::HfConfig& config, ModelSpec& spec, const std::vector<bool>& rotates);
// The last `count` layers have queries alone, and the keys and values of the last layer of their
// type before them all. `key` says how many, for the error if there is no such layer.
void share_kv_of_last_layers(const formats::HfConfig& config, ModelSpec& spec, int64_t count,
                             std::string_view key);

// Inputs of layers' own, by the keys and names that Gemma 3n and 4 have; none if
// hidden_size_per_layer_input is 0. The gate is that of a layer's MLP.
void use_layer_inputs(const formats::HfConfig& config, ModelSpec& spec);

// Norms of what each part of a layer makes, and none (or also one) of what it is given, by the
// names that OLMo's and Gemma's checkpoints have.
void norm_outputs_only(const std::string& prefix, LayerSpec& layer);
void norm_inputs_and_outputs(const std::string& prefix, LayerSpec& layer);

// Makes the norms around the parts of all layers, and the last one, layer norms; with biases, named
// as their weights are.
void use_layer_norms(ModelSpec& spec, bool biases);

// Whether the file has the key, if only to say null.
bool states_key(const formats::HfConfig& config, std::string_view key);
// A switch that some files state as a number.
bool is_on(const formats::HfConfig& config, std::string_view key, bool fallback);
// A cap on scores or logits; 0 (none) if the file says null.
float softcap_of(const formats::HfConfig& config, std::string_view key, double fallback);
// The dimensions of a head that rotate, by a share that the config states, or by `fallback`.
int64_t rotary_dim_of(const formats::HfConfig& config, double fallback);
// A text model skips the vision and audio parts of the wrapper that it comes in.
void ignore_vision(ModelSpec& spec);
void ignore_audio(ModelSpec& spec);

// Replaces the MLP of layers from `first` on by make(prefix), the prefix as above.
template <class F>
void set_experts(ModelSpec& spec, int64_t first, F&& make) {
  for (size_t i = static_cast<size_t>(first); i < spec.layers.size(); ++i)
    spec.layers[i].ffn = make("model.layers." + std::to_string(i) + ".");
}

// Names behind a prefix ("model.layers.3.mlp."): an MLP as Llama's, experts as Qwen's and
// DeepSeek's, or as Mixtral's; and those that mlx-lm makes of them.
MlpSpec mlp_named(const std::string& prefix, int64_t intermediate, const ops::Gate& gate);
std::vector<MoeSpec::Names> expert_layouts(const std::string& prefix);
std::vector<MoeSpec::Names> mixtral_layouts(const std::string& prefix);

struct ExpertsOptions {
  bool normalise = false;    // the chosen weights are divided by their sum
  bool every_layer = false;  // else decoder_sparse_step and mlp_only_layers say in which
};
// Replaces the MLP by a mixture of experts, named as Qwen's checkpoints name them; with a shared
// expert if shared_expert_intermediate_size is given.
void use_experts(const formats::HfConfig& config, ModelSpec& spec, const ExpertsOptions& options);

// Experts in every layer, as wide as intermediate_size, of num_local_experts or num_experts
// num_experts_per_tok for a token (unless top_k has it for each layer); `layouts` gives their names
// behind the layer's prefix and `part`, where the router is "gate.weight".
void use_plain_experts(const formats::HfConfig& config, ModelSpec& spec, const std::string& part,
                       std::vector<MoeSpec::Names> (*layouts)(const std::string& prefix),
                       ops::MoeRouteOptions route, const std::vector<int64_t>& top_k = {});

// The experts of DeepSeek V3 and what copies them: sigmoid scores with a correction, chosen in
// groups, shared experts that count fully; in the layers that mlp_layer_types calls sparse, or
// behind the first dense ones. What a file does not say is as in the family's config class.
struct DeepseekDefaults {
  int64_t first_dense = 1, shared = 1, groups = 1, chosen_groups = 1;
  double scale = 1.0;
};
void use_deepseek_experts(const formats::HfConfig& config, ModelSpec& spec,
                          const DeepseekDefaults& defaults = {});
// Layers that predict further tokens are stored behind the others; a text model skips them.
void ignore_mtp_layers(const formats::HfConfig& config, ModelSpec& spec);

// Multi-head latent attention in every layer, by the names of DeepSeek's checkpoints and those that
// mlx-lm makes of them.
void use_latent_attention(const formats::HfConfig& config, ModelSpec& spec, int64_t max_positions);

// Throws LoadError naming the key unless it is absent or has this value, the only one that the
// family's code knows.
void require_only(const formats::HfConfig& config, std::string_view key, std::string_view value);
void require_only(const formats::HfConfig& config, std::string_view key, int64_t value);

// What Qwen3-Next and the Qwen3.5 models share: layers of a gated delta net, and here and there one
// of attention with an output gate and partial rotation; norms around zero; a vision part and
// multi-token prediction that a text model skips. Starts from `spec` (dense_decoder's); the names
// of the delta nets' projections are left to the family.
void make_hybrid(const formats::HfConfig& config, ModelSpec& spec);

// Visits the gated delta nets with the prefix of their weights ("model.layers.3.linear_attn.").
template <class F>
void for_each_gdn(ModelSpec& spec, F&& f) {
  for (size_t i = 0; i < spec.layers.size(); ++i)
    if (auto* gdn = std::get_if<GdnSpec>(&spec.layers[i].mixer))
      f("model.layers." + std::to_string(i) + ".linear_attn.", *gdn);
}

// Adds Llama-style bias names for q, k and v, and for the output projection if `output`.
void add_attention_biases(const std::string& prefix, AttentionSpec& attention, bool output);

// Whether layer_types, which must not be empty, gives the layer a window. Throws LoadError naming
// the key for any other type than full_attention.
bool is_sliding_layer(const formats::HfConfig& config, size_t layer);

// AttentionSpec::window_left of a Qwen layer: off unless use_sliding_window; then by layer_types,
// or every layer from max_window_layers on.
int64_t window_of_layer(const formats::HfConfig& config, size_t layer);

}  // namespace quire::models
