#include "formats/gguf/tensor_names.h"

#include <utility>

namespace quire::formats {
namespace {

constexpr std::string_view kLayers = "model.layers.";

// The names that most architectures share.
constexpr std::pair<const char*, const char*> kParts[] = {
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.gate_proj"},
    {"ffn_up_exps", "mlp.experts.up_proj"},
    {"ffn_down_exps", "mlp.experts.down_proj"},
};

constexpr std::pair<std::string_view, std::string_view> kEnds[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output_norm.bias", "model.norm.bias"},
    {"output.weight", "lm_head.weight"},
    {"output.bias", "lm_head.bias"},
    {"output.scale", "lm_head.scale"},
    {"output.input_scale", "lm_head.input_scale"},
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
};

}  // namespace

std::optional<GgufBlockName> gguf_block_name(std::string_view name) {
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return std::nullopt;
  name.remove_prefix(kBlock.size());
  const size_t first = name.find('.'), last = name.rfind('.');
  if (first == std::string_view::npos) return std::nullopt;
  if (first == last)
    return GgufBlockName{.layer = name.substr(0, first), .part = name.substr(first + 1)};
  return GgufBlockName{.layer = name.substr(0, first),
                       .part = name.substr(first + 1, last - first - 1),
                       .ending = name.substr(last)};
}

GgufTensorNames::GgufTensorNames() {
  for (const auto& [gguf, hugging_face] : kParts)
    parts_[gguf] = {.name = hugging_face, .is_shared = true};
  rename_whole("ffn_gate_up_exps", "mlp.experts.gate_up_proj");
}

std::optional<std::string> GgufTensorNames::hugging_face(std::string_view gguf) const {
  for (const auto& [name, hugging_face] : kEnds)
    if (gguf == name) return std::string(hugging_face);
  const auto block = gguf_block_name(gguf);
  if (!block) return std::nullopt;
  auto part = parts_.find(std::string(block->part) + std::string(block->ending));
  if (part == parts_.end()) part = parts_.find(block->part);
  if (part == parts_.end()) return std::nullopt;
  const std::string stem =
      std::string(kLayers) + std::string(block->layer) + "." + part->second.name;
  return part->second.is_whole ? stem : stem + std::string(block->ending);
}

std::optional<std::string> GgufTensorNames::gguf(std::string_view hugging_face) const {
  for (const auto& [name, end] : kEnds)
    if (hugging_face == end) return std::string(name);
  if (!hugging_face.starts_with(kLayers)) return std::nullopt;
  const size_t dot = hugging_face.find('.', kLayers.size());
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view rest = hugging_face.substr(dot + 1);
  const std::string block =
      "blk." + std::string(hugging_face.substr(kLayers.size(), dot - kLayers.size())) + ".";
  for (const bool shared : {false, true})
    for (const auto& [name, part] : parts_)
      if (const auto ending = ending_of(part, rest); ending && part.is_shared == shared)
        return block + name + *ending;
  return std::nullopt;
}

// What follows in GGUF's name if the part is that of this one.
std::optional<std::string> GgufTensorNames::ending_of(const Part& part,
                                                      std::string_view hugging_face) {
  if (!hugging_face.starts_with(part.name)) return std::nullopt;
  const std::string_view ending = hugging_face.substr(part.name.size());
  // Of what has no ending there, nothing says which one it has in files.
  const bool fits =
      ending.empty() || (!part.is_whole && (ending == ".weight" || ending == ".bias"));
  return fits ? std::optional(std::string(ending)) : std::nullopt;
}

}  // namespace quire::formats
