#include "formats/folder_readers.h"

#include "formats/folder_keys.h"
#include "formats/raw_tensor.h"

namespace quire::formats {

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
  expect_string(config, "bnb_4bit_quant_storage", "uint8");
  out.groups = {
      {.scheme = {.format = FolderFormat::kNf4, .bits = 4, .group_size = 64}, .targets = {}}};
  out.excluded = read_names(config, "llm_int8_skip_modules");
}

}  // namespace quire::formats
