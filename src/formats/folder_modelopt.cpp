#include "formats/folder_readers.h"

#include <algorithm>
#include <iterator>

#include "formats/folder_keys.h"
#include "formats/raw_tensor.h"

namespace quire::formats {
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
  if (algorithm == "FP8_PB_WO")
    scheme.block_rows = scheme.block_columns = 128;
  else if (algorithm == "NVFP4" || algorithm == "W4A16_NVFP4")
    scheme = {.format = FolderFormat::kModeloptNvfp4, .bits = 4, .group_size = 16};
  else if (algorithm != "FP8" && algorithm != "FP8_PER_CHANNEL_PER_TOKEN")
    fail_value(config, "quant_algo", quote_name(algorithm),
               "\"NVFP4\", \"W4A16_NVFP4\", \"FP8\", \"FP8_PER_CHANNEL_PER_TOKEN\", "
               "\"FP8_PB_WO\", \"MIXED_PRECISION\" of these; take the model's unquantised "
               "checkpoint");
  const int64_t usual = scheme.group_size ? scheme.group_size : scheme.block_columns;
  const int64_t size = config.find_int("group_size").value_or(usual);
  if (usual && size != usual)
    fail_value(config, "group_size", std::to_string(size), std::to_string(usual));
  return scheme;
}

// What would become of activations by it. `said`: groups say whether scales are stored.
void note_activations(const std::string& algorithm, bool said, FolderQuantization& out) {
  if (algorithm == "FP8" && !said) note_float_activations(8, true, out);
  if (algorithm == "FP8_PER_CHANNEL_PER_TOKEN") note_float_activations(8, false, out);
  if (algorithm == "NVFP4") note_float_activations(4, false, out);
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
  for_each_object(config, "config_groups", *groups, [&](const auto&, const ConfigReader& group) {
    expect_known_keys(group, FolderKeys::kCompressedGroup);
    read_modelopt_group(group, scheme, out);
  });
  return true;
}

// Layers that have algorithms of their own; others are not quantised. Groups in the words of
// compressed-tensors say the same once more.
void read_mixture(const ConfigReader& config, FolderQuantization& out) {
  const json::object* layers = config.find_object("quantized_layers");
  if (!layers || layers->empty()) config.fail("quantized_layers", "is missing or empty");
  for (const char* key : {"weights", "input_activations"}) expect_nothing(config, key);
  const auto read_layer = [&](const std::string& name, const ConfigReader& layer) {
    expect_known_keys(layer, FolderKeys::kModeloptLayer);
    const std::string algorithm = read_algorithm(layer);
    const FolderScheme scheme = scheme_of(layer, algorithm);
    note_activations(algorithm, false, out);
    auto group = std::ranges::find(out.groups, scheme, &FolderQuantization::Group::scheme);
    if (group == out.groups.end()) {
      out.groups.push_back({.scheme = scheme, .targets = {}});
      group = std::prev(out.groups.end());
    }
    group->targets.push_back(name);
  };
  for_each_object(config, "quantized_layers", *layers, read_layer);
}

void read_uniform(const ConfigReader& config, const std::string& algorithm,
                  FolderQuantization& out) {
  const FolderScheme scheme = scheme_of(config, algorithm);
  expect_nothing(config, "quantized_layers");
  const bool said = read_modelopt_groups(config, scheme, out);
  note_activations(algorithm, said, out);
  out.groups = {{.scheme = scheme, .targets = {}}};
}

}  // namespace

// What hf_quant_config.json says, or the same in config.json, or there in the words of
// compressed-tensors.
void read_modelopt(const ConfigReader& top, FolderQuantization& out) {
  const json::object* inner = top.find_object("quantization");
  const ConfigReader config = inner ? top.inside("quantization", *inner) : top;
  expect_known_keys(top, FolderKeys::kModelopt);
  if (inner) expect_known_keys(config, FolderKeys::kModeloptInner);
  read_kv_cache(config, out);
  const std::string algorithm = read_algorithm(config);
  if (algorithm == "MIXED_PRECISION")
    read_mixture(config, out);
  else
    read_uniform(config, algorithm, out);
  out.excluded = read_wild_names(config, "exclude_modules");
  for (std::string& name : read_wild_names(config, "ignore"))
    out.excluded.push_back(std::move(name));
}

}  // namespace quire::formats
