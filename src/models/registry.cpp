#include "models/registry.h"

#include <utility>

#include "base/error.h"
#include "models/families/families.h"
#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::models {
namespace {

using Family = ModelSpec (*)(const formats::HfConfig&, int64_t max_positions);

// One line per Hugging Face architecture. Those that end with Model have no head.
constexpr std::pair<const char*, Family> kFamilies[] = {
    {"ArceeForCausalLM", arcee},
    {"Cohere2ForCausalLM", cohere2},
    {"CohereForCausalLM", cohere},
    {"DeepseekV2ForCausalLM", deepseek_v2},
    {"DeepseekV3ForCausalLM", deepseek_v3},
    {"Dots1ForCausalLM", dots1},
    {"Ernie4_5ForCausalLM", ernie45},
    {"Ernie4_5_MoeForCausalLM", ernie45_moe},
    {"Exaone4ForCausalLM", exaone4},
    {"Gemma2ForCausalLM", gemma2},
    {"Gemma3ForCausalLM", gemma3},
    {"Gemma3ForConditionalGeneration", gemma3},
    {"Gemma4ForCausalLM", gemma4},
    {"Gemma4ForConditionalGeneration", gemma4},
    {"GemmaForCausalLM", gemma1},
    {"Glm4ForCausalLM", glm4},
    {"Glm4MoeForCausalLM", glm4_moe},
    {"Glm4MoeLiteForCausalLM", glm4_moe_lite},
    {"GlmForCausalLM", glm},
    {"GptOssForCausalLM", gpt_oss},
    {"GraniteForCausalLM", granite},
    {"GraniteMoeForCausalLM", granite_moe},
    {"GraniteMoeHybridForCausalLM", granite_hybrid},
    {"GraniteMoeSharedForCausalLM", granite_moe},
    {"HeliumForCausalLM", helium},
    {"HunYuanDenseV1ForCausalLM", hunyuan},
    {"HunYuanMoEV1ForCausalLM", hunyuan_moe},
    {"Llama4ForCausalLM", llama4},
    {"Llama4ForConditionalGeneration", llama4},
    {"LlamaForCausalLM", llama},
    {"LlamaModel", llama},
    {"Ministral3ForCausalLM", ministral3},
    {"MiniMaxM2ForCausalLM", minimax_m2},
    {"MinistralForCausalLM", ministral},
    {"Mistral3ForConditionalGeneration", mistral3},
    {"MistralForCausalLM", mistral},
    {"MistralModel", mistral},
    {"MixtralForCausalLM", mixtral},
    {"Olmo2ForCausalLM", olmo2},
    {"Olmo3ForCausalLM", olmo3},
    {"OlmoeForCausalLM", olmoe},
    {"Phi3ForCausalLM", phi3},
    {"PhimoeForCausalLM", phimoe},
    {"Qwen2ForCausalLM", qwen2},
    {"Qwen2Model", qwen2},
    {"Qwen2MoeForCausalLM", qwen2_moe},
    {"Qwen3_5ForCausalLM", qwen3_5},
    {"Qwen3_5ForConditionalGeneration", qwen3_5},
    {"Qwen3_5MoeForCausalLM", qwen3_5_moe},
    {"Qwen3_5MoeForConditionalGeneration", qwen3_5_moe},
    {"Qwen3ForCausalLM", qwen3},
    {"Qwen3Model", qwen3},
    {"Qwen3MoeForCausalLM", qwen3_moe},
    {"Qwen3NextForCausalLM", qwen3_next},
    {"SeedOssForCausalLM", seed_oss},
    {"SmolLM3ForCausalLM", smollm3},
};

// Rotation takes pairs.
void check_rope(const formats::HfConfig& config, const AttentionSpec& attention) {
  if (!attention.rope) return;
  const int64_t rotary = attention.rope->rotary_dim;
  if (rotary >= 2 && rotary % 2 == 0) return;
  config.reader().fail(states_key(config, "rotary_dim") ? "rotary_dim" : "partial_rotary_factor",
                       "rotates " + std::to_string(rotary) + " of a head's " +
                           std::to_string(attention.head_dim) +
                           " dimensions; supported are even numbers of them");
}

// What the kernels take.
void check_head(const formats::HfConfig& config, const AttentionSpec& attention) {
  const int64_t dim = attention.head_dim;
  if (dim < 8 || dim > ops::kMaxHeadDim || dim % 8 != 0)
    config.reader().fail("head_dim", "is " + std::to_string(dim) +
                                         "; supported are multiples of 8 up to " +
                                         std::to_string(ops::kMaxHeadDim));
  check_rope(config, attention);
}

// Groups are equal, and those that a token chooses from hold the experts that it goes to.
void check_groups(const formats::HfConfig& config, const MoeSpec& moe) {
  const ops::MoeRouteOptions& route = moe.route;
  if (route.chosen_groups > route.groups)
    config.reader().fail("topk_group", "is " + std::to_string(route.chosen_groups) + " of " +
                                           std::to_string(route.groups) + " groups");
  if (route.groups == 1) return;
  const int64_t each = moe.num_experts / route.groups;
  if (moe.num_experts % route.groups != 0 || (route.groups_by_two && each < 2))
    config.reader().fail("n_group", "is " + std::to_string(route.groups) +
                                        ", which does not part " + std::to_string(moe.num_experts) +
                                        " experts into equal groups of some");
  if (route.chosen_groups * each < route.top_k)
    config.reader().fail("topk_group", "is " + std::to_string(route.chosen_groups) +
                                           ": groups of " + std::to_string(each) +
                                           " have fewer than the " + std::to_string(route.top_k) +
                                           " experts of a token");
}

// A family of experts only has no intermediate_size; any layer that is dense needs it.
void check_layers(const formats::HfConfig& config, const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer))
      check_head(config, *attention);
    if (const MoeSpec* moe = experts_of(layer)) check_groups(config, *moe);
    const MlpSpec* mlp = mlp_of(layer);
    if (mlp && mlp->intermediate == 0)
      config.reader().fail("intermediate_size", "is missing; this kind of model needs it");
  }
}

}  // namespace

std::vector<std::string> supported_architectures() {
  std::vector<std::string> names;
  for (const auto& [name, family] : kFamilies) names.emplace_back(name);
  return names;
}

ModelSpec make_model_spec(const formats::HfConfig& config, int64_t max_positions) {
  const std::string architecture =
      config.architectures.empty() ? "(none)" : config.architectures.front();
  for (const auto& [name, family] : kFamilies)
    if (architecture == name) {
      ModelSpec spec = family(config, max_positions);
      check_layers(config, spec);
      return spec;
    }
  std::string list;
  for (const auto& name : supported_architectures()) list += (list.empty() ? "" : ", ") + name;
  throw LoadError(config.file + ": architecture " + architecture +
                  " is not supported; supported are " + list);
}

}  // namespace quire::models
