#include "models/registry.h"

#include <utility>

#include "base/error.h"
#include "models/families/families.h"

namespace quire::models {
namespace {

using Family = ModelSpec (*)(const formats::HfConfig&, int64_t max_positions);

// One line per Hugging Face architecture. Those that end with Model have no head.
constexpr std::pair<const char*, Family> kFamilies[] = {
    {"ArceeForCausalLM", arcee},
    {"Dots1ForCausalLM", dots1},
    {"Ernie4_5_MoeForCausalLM", ernie45_moe},
    {"Exaone4ForCausalLM", exaone4},
    {"Gemma2ForCausalLM", gemma2},
    {"Gemma3ForCausalLM", gemma3},
    {"Gemma3ForConditionalGeneration", gemma3},
    {"Gemma4ForCausalLM", gemma4},
    {"Gemma4ForConditionalGeneration", gemma4},
    {"Glm4ForCausalLM", glm4},
    {"Glm4MoeForCausalLM", glm4_moe},
    {"GlmForCausalLM", glm},
    {"GptOssForCausalLM", gpt_oss},
    {"GraniteForCausalLM", granite},
    {"GraniteMoeForCausalLM", granite_moe},
    {"GraniteMoeHybridForCausalLM", granite_hybrid},
    {"GraniteMoeSharedForCausalLM", granite_moe},
    {"HeliumForCausalLM", helium},
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
  config.reader().fail("partial_rotary_factor",
                       "rotates " + std::to_string(rotary) + " of a head's " +
                           std::to_string(attention.head_dim) +
                           " dimensions; supported are even numbers of them");
}

// A family of experts only has no intermediate_size; any layer that is dense needs it.
void check_widths(const formats::HfConfig& config, const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer))
      check_rope(config, *attention);
    const auto* mlp = std::get_if<MlpSpec>(&layer.ffn);
    if (mlp && mlp->intermediate == 0)
      throw LoadError(config.file + ": intermediate_size is missing");
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
      check_widths(config, spec);
      return spec;
    }
  std::string list;
  for (const auto& name : supported_architectures()) list += (list.empty() ? "" : ", ") + name;
  throw LoadError(config.file + ": architecture " + architecture +
                  " is not supported; supported are " + list);
}

}  // namespace quire::models
