#include "formats/folder_readers.h"

#include "formats/folder_keys.h"
#include "formats/raw_tensor.h"

namespace quire::formats {
namespace {

// What AutoRound says beside transformers' keys: the same, in its own words.
void expect_same_of_auto_round(const ConfigReader& config, FolderScheme& scheme) {
  if (config.find("bits")) read_bits(config, "bits", {8}, scheme);
  for (const char* key : {"data_type", "act_data_type"}) expect_string(config, key, "fp");
  if (!config.find_bool("sym").value_or(true)) fail_value(config, "sym", "false", "true");
  const int64_t activations = config.find_int("act_bits").value_or(8);
  if (activations != 8) fail_value(config, "act_bits", std::to_string(activations), "8");
  const json::value *group = config.find("group_size"), *block = config.find("weight_block_size");
  if (group && (!block || *group != *block))
    config.fail("group_size", "is not what \"weight_block_size\" says");
  // Layers that stay as they are, which ignored_layers lists.
  const json::object* layers = config.find_object("extra_config");
  if (!layers) return;
  for_each_object(config, "extra_config", *layers, [](const auto&, const ConfigReader& layer) {
    const int64_t bits = layer.find_int("bits").value_or(8);
    if (bits < 16) fail_value(layer, "bits", std::to_string(bits), "16");
  });
}

}  // namespace

std::optional<DType> nf4_storage(const HfConfig& config) {
  if (config.quantization.is_null()) return std::nullopt;
  const ConfigReader reader(config.file, config.quantization.get_object(), nullptr,
                            "quantization_config.");
  if (reader.find_string("quant_method") != "bitsandbytes") return std::nullopt;
  return dtype_of_torch(reader.find_string("bnb_4bit_quant_storage").value_or(""));
}

void read_fp8(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kFp8);
  FolderScheme scheme = {.format = FolderFormat::kFp8, .bits = 8};
  // The second is torch's name.
  const std::string type = config.find_string("fmt").value_or("e4m3");
  if (type != "e4m3" && type != "float8_e4m3fn")
    fail_value(config, "fmt", quote_name(type), "\"e4m3\", \"float8_e4m3fn\"");
  expect_string(config, "expert_dtype", "fp8");
  read_kv_cache(config, out);
  if (config.find("weight_block_size")) set_block(config, "weight_block_size", scheme);
  expect_same_of_auto_round(config, scheme);
  const std::string activations = config.find_string("activation_scheme").value_or("dynamic");
  if (activations != "dynamic" && activations != "static")
    fail_value(config, "activation_scheme", quote_name(activations), "\"dynamic\", \"static\"");
  note_float_activations(8, activations == "static", out);
  out.groups = {{.scheme = scheme, .targets = {}}};
  out.excluded = read_names(config, "modules_to_not_convert");
  for (std::string& name : read_names(config, "ignored_layers"))
    out.excluded.push_back(std::move(name));
}

void read_bitsandbytes(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kBitsandbytes);
  const std::string instead =
      "; take the model's unquantised checkpoint, of which `quire quantize` makes 4 or 8 bits";
  if (config.find_bool("load_in_8bit").value_or(false))
    fail_value(config, "load_in_8bit", "true", "false" + instead);
  if (!config.find_bool("load_in_4bit").value_or(false))
    fail_value(config, "load_in_4bit", "false", "true" + instead);
  const std::string type = config.find_string("bnb_4bit_quant_type").value_or("fp4");
  if (type != "nf4")
    fail_value(config, "bnb_4bit_quant_type", quote_name(type), "\"nf4\"" + instead);
  const auto storage = config.find_string("bnb_4bit_quant_storage");
  if (storage && storage != "uint8" && !dtype_of_torch(*storage))
    fail_value(config, "bnb_4bit_quant_storage", quote_name(*storage),
               "\"uint8\", \"bfloat16\", \"float16\", \"float32\"");
  out.groups = {
      {.scheme = {.format = FolderFormat::kNf4, .bits = 4, .group_size = 64}, .targets = {}}};
  out.excluded = read_names(config, "llm_int8_skip_modules");
}

}  // namespace quire::formats
