#include "formats/folder_readers.h"

#include "formats/folder_keys.h"
#include "formats/raw_tensor.h"

namespace quire::formats {
namespace {

std::optional<DType> storage_of(std::string_view name) {
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  if (name == "float32") return DType::kF32;
  return std::nullopt;
}

}  // namespace

std::optional<DType> nf4_storage(const HfConfig& config) {
  if (config.quantization.is_null()) return std::nullopt;
  const ConfigReader reader(config.file, config.quantization.get_object(), nullptr,
                            "quantization_config.");
  if (reader.find_string("quant_method") != "bitsandbytes") return std::nullopt;
  return storage_of(reader.find_string("bnb_4bit_quant_storage").value_or(""));
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
  if (storage && storage != "uint8" && !storage_of(*storage))
    fail_value(config, "bnb_4bit_quant_storage", quote_name(*storage),
               "\"uint8\", \"bfloat16\", \"float16\", \"float32\"");
  out.groups = {
      {.scheme = {.format = FolderFormat::kNf4, .bits = 4, .group_size = 64}, .targets = {}}};
  out.excluded = read_names(config, "llm_int8_skip_modules");
}

}  // namespace quire::formats
