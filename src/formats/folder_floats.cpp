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

namespace {

// Names of modelopt may have "*" for any letters.
std::vector<std::string> read_wild_names(const ConfigReader& config, std::string_view key) {
  std::vector<std::string> names = config.get_strings(key);
  for (std::string& name : names) {
    if (name.find('*') == std::string::npos) continue;
    std::string pattern(kPattern);
    for (const char c : name) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' || c == '*';
      if (!plain)
        config.fail(key, "has the pattern " + quote_name(name) + ", which is not understood");
      pattern += c == '*' ? ".*" : c == '.' ? "\\." : std::string(1, c);
    }
    name = pattern + "$";
  }
  return names;
}

// One of modelopt's algorithms, which some of its versions write in small letters; or nothing.
std::string read_algorithm(const ConfigReader& config) {
  std::string algorithm = config.find_string("quant_algo").value_or("missing");
  for (char& c : algorithm)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return algorithm;
}

// What becomes of weights by it.
FolderScheme scheme_of(const ConfigReader& config, const std::string& algorithm) {
  FolderScheme scheme = {.format = FolderFormat::kFp8, .bits = 8};
  if (algorithm == "FP8" || algorithm == "FP8_PER_CHANNEL_PER_TOKEN") return scheme;
  if (algorithm == "FP8_PB_WO") {
    scheme.block_rows = scheme.block_columns = 128;
    return scheme;
  }
  if (algorithm != "NVFP4" && algorithm != "W4A16_NVFP4")
    fail_value(config, "quant_algo", quote_name(algorithm),
               "\"NVFP4\", \"W4A16_NVFP4\", \"FP8\", \"FP8_PER_CHANNEL_PER_TOKEN\", "
               "\"FP8_PB_WO\"; take the model's unquantised checkpoint");
  return {.format = FolderFormat::kModeloptNvfp4, .bits = 4, .group_size = 16};
}

// In the words of compressed-tensors, which say what quant_algo does, and more of activations.
void read_modelopt_group(const ConfigReader& group, FolderScheme scheme, FolderQuantization& out) {
  const json::object* weights = group.find_object("weights");
  if (!weights) group.fail("weights", "is missing");
  read_float_activations(group, scheme.bits, out);
  const ConfigReader arguments = group.inside("weights", *weights);
  expect_known_keys(arguments, FolderKeys::kCompressedArguments);
  if (scheme.format == FolderFormat::kModeloptNvfp4)
    (void)read_nvfp4(arguments, scheme.format);
  else
    read_float8_arguments(arguments, scheme);
}

// Groups of layers, or one without a name. Returns whether there are any.
bool read_modelopt_groups(const ConfigReader& config, const FolderScheme& scheme,
                          FolderQuantization& out) {
  const bool plain = config.find("weights") || config.find("input_activations");
  if (plain) read_modelopt_group(config, scheme, out);
  const json::object* groups = config.find_object("config_groups");
  if (!groups || groups->empty()) return plain;
  const ConfigReader all = config.inside("config_groups", *groups);
  for (const auto& entry : *groups) {
    const std::string_view name(entry.key().data(), entry.key().size());
    const json::object* object = all.find_object(name);
    if (!object) all.fail(name, "is null");
    const ConfigReader group = all.inside(name, *object);
    expect_known_keys(group, FolderKeys::kCompressedGroup);
    read_modelopt_group(group, scheme, out);
  }
  return true;
}

}  // namespace

// What hf_quant_config.json says, or the same in config.json, or there in the words of
// compressed-tensors.
void read_modelopt(const ConfigReader& top, FolderQuantization& out) {
  const json::object* inner = top.find_object("quantization");
  const ConfigReader config = inner ? top.inside("quantization", *inner) : top;
  expect_known_keys(top, FolderKeys::kModelopt);
  if (inner) expect_known_keys(config, FolderKeys::kModeloptInner);
  const std::string algorithm = read_algorithm(config);
  const FolderScheme scheme = scheme_of(config, algorithm);
  read_kv_cache(config, out);
  const int64_t usual = scheme.group_size ? scheme.group_size : scheme.block_columns;
  const int64_t size = config.find_int("group_size").value_or(usual);
  if (usual && size != usual)
    fail_value(config, "group_size", std::to_string(size), std::to_string(usual));
  const bool said = read_modelopt_groups(config, scheme, out);
  if (algorithm == "FP8" && !said) note_float_activations(8, true, out);
  if (algorithm == "NVFP4" || algorithm == "FP8_PER_CHANNEL_PER_TOKEN")
    note_float_activations(scheme.bits, false, out);
  out.groups = {{.scheme = scheme, .targets = {}}};
  out.excluded = read_wild_names(config, "exclude_modules");
  for (std::string& name : read_wild_names(config, "ignore"))
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
