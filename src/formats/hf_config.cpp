#include "formats/hf_config.h"

#include <filesystem>
#include <utility>

#include "formats/class_defaults.h"
#include "formats/config_defaults.h"
#include "formats/raw_tensor.h"

namespace quire::formats {
namespace {

// Limits far above any model and far below what overflows when multiplied by a few others.
constexpr IntRange kWidth{.min = 1, .max = 1 << 24};
constexpr IntRange kHeads{.min = 1, .max = 1 << 16};
constexpr IntRange kPositions{.min = 1, .max = 1 << 22};  // each takes room in a table
constexpr IntRange kTokenId{.min = 0, .max = INT32_MAX};

const json::object* text_config(const json::value& raw) {
  const json::value* text = raw.get_object().if_contains("text_config");
  return text && text->is_object() ? &text->get_object() : nullptr;
}

void read_names(const ConfigReader& top, const ConfigReader& config, HfConfig& out) {
  out.architectures = top.get_strings("architectures");
  if (out.architectures.empty()) {
    top.fail("architectures",
             "is missing; expected the config.json of a Hugging Face model, which names its "
             "architecture");
  }
  out.model_type = top.find_string("model_type").value_or("");
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto name = config.find_string(key);
    if (!name) continue;
    out.dtype = dtype_of_torch(*name);
    if (!out.dtype)
      config.fail(key, "must be float32, float16 or bfloat16, not " + quote_name(*name));
    return;
  }
}

void read_sizes(const ConfigReader& config, HfConfig& out) {
  out.hidden_size = config.require_int("hidden_size", kWidth);
  out.intermediate_size = config.find_int("intermediate_size", kWidth).value_or(0);
  out.num_hidden_layers = config.require_int("num_hidden_layers", {.min = 1, .max = 9999});
  out.num_attention_heads = config.require_int("num_attention_heads", kHeads);
  out.num_key_value_heads =
      config.find_int("num_key_value_heads", kHeads).value_or(out.num_attention_heads);
  if (out.num_attention_heads % out.num_key_value_heads != 0) {
    config.fail("num_key_value_heads", "is " + std::to_string(out.num_key_value_heads) +
                                           ", which does not divide num_attention_heads (" +
                                           std::to_string(out.num_attention_heads) + ")");
  }
  constexpr IntRange kHeadDim{.min = 1, .max = 1 << 14};
  auto head_dim = config.find_int("head_dim", kHeadDim);
  // With latent attention heads have several widths, and transformers means the rotated one.
  if (!head_dim) head_dim = config.find_int("qk_rope_head_dim", kHeadDim);
  if (!head_dim && out.hidden_size % out.num_attention_heads != 0) {
    config.fail("num_attention_heads", "is " + std::to_string(out.num_attention_heads) +
                                           ", which does not divide hidden_size (" +
                                           std::to_string(out.hidden_size) +
                                           "), and there is no head_dim");
  }
  out.head_dim = head_dim.value_or(out.hidden_size / out.num_attention_heads);
  out.vocab_size = config.require_int("vocab_size", {.min = 1, .max = 1 << 28});
  out.max_position_embeddings = config.require_int("max_position_embeddings", kPositions);
}

void read_details(const ConfigReader& config, HfConfig& out) {
  out.rms_norm_eps = config.find_double("rms_norm_eps", kEpsilons).value_or(out.rms_norm_eps);
  out.tie_word_embeddings = config.find_bool("tie_word_embeddings").value_or(false);
  out.attention_bias = config.find_bool("attention_bias").value_or(false);
  out.mlp_bias = config.find_bool("mlp_bias").value_or(false);
  auto act = config.find_string("hidden_act");
  if (!act) act = config.find_string("hidden_activation");
  out.hidden_act = act.value_or(out.hidden_act);
  out.sliding_window = config.find_int("sliding_window", {.min = 0, .max = INT32_MAX});
  if (out.sliding_window == 0) out.sliding_window.reset();  // how some files say "none"
  out.use_sliding_window = config.find_bool("use_sliding_window");
  out.max_window_layers = config.find_int("max_window_layers", {.min = 0, .max = INT32_MAX});
  out.layer_types = config.get_strings("layer_types");
  if (!out.layer_types.empty() &&
      out.layer_types.size() != static_cast<size_t>(out.num_hidden_layers)) {
    config.fail("layer_types", "lists " + std::to_string(out.layer_types.size()) +
                                   " layers, but num_hidden_layers is " +
                                   std::to_string(out.num_hidden_layers));
  }
}

// -1 stands for "none" in some files.
std::optional<int64_t> find_token_id(const ConfigReader& config, std::string_view key) {
  const auto id = config.find_int(key, {.min = -1, .max = kTokenId.max});
  return id == -1 ? std::nullopt : id;
}

void read_quantization(const ConfigReader& config, HfConfig& out) {
  for (const char* key : {"quantization", "quantization_config"}) {
    const json::object* object = config.find_object(key);
    if (!object) continue;
    out.quantization = *object;
    return;
  }
}

// Older folders say in a file beside config.json, and nowhere else, that their weights are
// quantised. Nothing if there is no such file.
std::optional<std::string> file_beside(const HfConfig& config, const char* name) {
  const std::string file = std::filesystem::path(config.file).replace_filename(name).string();
  return std::filesystem::exists(file) ? std::optional(file) : std::nullopt;
}

// NVIDIA's modelopt.
void read_modelopt(HfConfig& out) {
  const auto found = file_beside(out, "hf_quant_config.json");
  if (!found) return;
  const std::string& file = *found;
  const json::value raw = read_json_object(file);
  const ConfigReader top(file, raw.get_object());
  const json::object* object = top.find_object("quantization");
  if (!object || !top.inside("quantization", *object).find_string("quant_algo")) return;
  json::object quantization = *object;
  quantization["quant_method"] = "modelopt";
  out.quantization = std::move(quantization);
  out.quantization_file = file;
  out.quantization_path = "quantization.";
}

// AutoGPTQ and AutoAWQ, whose keys stand at the top. Only later versions name the method.
void read_integers_beside(HfConfig& out, const char* name) {
  const auto file = file_beside(out, name);
  if (!file) return;
  json::value raw = read_json_object(*file);
  json::object& object = raw.get_object();
  const ConfigReader top(*file, object);
  const bool is_awq = top.find("w_bit") != nullptr;
  if (!is_awq && !top.find("bits")) return;
  const std::string method = top.find_string("quant_method").value_or(is_awq ? "awq" : "gptq");
  object["quant_method"] = method;
  out.quantization = std::move(raw);
  out.quantization_file = *file;
  out.quantization_path = "";
  out.quantization_may_be_old = true;
}

void read_beside(HfConfig& out) {
  read_modelopt(out);
  for (const char* name : {"quantize_config.json", "quant_config.json"})
    if (out.quantization.is_null()) read_integers_beside(out, name);
}

}  // namespace

std::optional<DType> dtype_of_torch(std::string_view name) {
  if (name == "float32") return DType::kF32;
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  return std::nullopt;
}

HfConfig parse_hf_config(json::value raw, const std::string& file, KeyNames stored) {
  HfConfig out;
  out.file = file;
  out.stored = std::move(stored);
  out.raw = std::move(raw);
  const ConfigReader top(file, out.raw.get_object());
  top.find_object("text_config");  // refuses another type
  json::object& object = out.raw.get_object();
  json::object& text = text_config(out.raw) ? object["text_config"].get_object() : object;
  add_config_defaults(text);
  add_class_defaults(text, object);
  const ConfigReader config = out.reader();
  read_names(top, config, out);
  read_sizes(config, out);
  read_details(config, out);
  // A wrapper's own key counts; transformers does not look at the one inside.
  if (const auto tied = top.find_bool("tie_word_embeddings")) out.tie_word_embeddings = *tied;
  out.bos_token_id = find_token_id(config, "bos_token_id");
  out.eos_token_ids = config.get_ints("eos_token_id", kTokenId);
  out.pad_token_id = find_token_id(config, "pad_token_id");
  RopeConfigs rope = read_rope_configs(
      config, {.head_dim = out.head_dim, .max_position_embeddings = out.max_position_embeddings});
  out.rope = std::move(rope.rope);
  out.rope_by_layer_type = std::move(rope.by_layer_type);
  read_quantization(config, out);
  return out;
}

HfConfig read_hf_config(const std::string& file) {
  HfConfig out = parse_hf_config(read_json_object(file), file);
  if (out.quantization.is_null()) read_beside(out);
  return out;
}

ConfigReader HfConfig::reader() const {
  const json::object* text = text_config(raw);
  const json::object& top = raw.get_object();
  return ConfigReader(file, text ? *text : top, text ? &top : nullptr, {}, &stored);
}

const RopeConfig& HfConfig::rope_for(const std::string& layer_type) const {
  const auto found = rope_by_layer_type.find(layer_type);
  return found == rope_by_layer_type.end() ? rope : found->second;
}

int64_t HfConfig::get_int(std::string_view key, int64_t fallback, IntRange range) const {
  return reader().find_int(key, range).value_or(fallback);
}

double HfConfig::get_double(std::string_view key, double fallback, RealRange range) const {
  return reader().find_double(key, range).value_or(fallback);
}

bool HfConfig::get_bool(std::string_view key, bool fallback) const {
  return reader().find_bool(key).value_or(fallback);
}

std::string HfConfig::get_string(std::string_view key, std::string_view fallback) const {
  return reader().find_string(key).value_or(std::string(fallback));
}

}  // namespace quire::formats
