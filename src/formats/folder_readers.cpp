#include "formats/folder_readers.h"

#include <algorithm>
#include <stdexcept>

#include "formats/raw_tensor.h"

namespace quire::formats {
namespace {

bool is_one_of(int64_t value, std::initializer_list<int64_t> allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

// Once, however many groups ask for it.
void add_note(FolderQuantization& out, const std::string& note) {
  if (("; " + out.note + ";").find("; " + note + ";") != std::string::npos) return;
  out.note += (out.note.empty() ? "" : "; ") + note;
}

}  // namespace

void fail_value(const ConfigReader& config, std::string_view key, const std::string& value,
                const std::string& supported) {
  config.fail(key, "is " + value + ", which is not supported; supported: " + supported);
}

void expect_nothing(const ConfigReader& config, std::string_view key) {
  const json::value* value = config.find(key);
  if (value && !is_nothing(*value)) config.fail(key, "is set, which is not supported");
}

void expect_string(const ConfigReader& config, std::string_view key, std::string_view only) {
  const auto value = config.find_string(key);
  if (value && *value != only) fail_value(config, key, quote_name(*value), quote_name(only));
}

void read_bits(const ConfigReader& config, std::string_view key, std::initializer_list<int64_t> of,
               FolderScheme& scheme) {
  const int64_t bits = config.require_int(key);
  std::string supported;
  for (const int64_t one : of) supported += (supported.empty() ? "" : ", ") + std::to_string(one);
  if (!is_one_of(bits, of)) fail_value(config, key, std::to_string(bits), supported);
  scheme.bits = static_cast<int>(bits);
}

void set_group(const ConfigReader& config, std::string_view key, int64_t size,
               FolderScheme& scheme) {
  if (size != -1 && (size < 32 || size % 32 != 0 || (size > 128 && size % 128 != 0) || size == 96))
    fail_value(config, key, std::to_string(size), "-1, 32, 64, 128 and multiples of 128");
  scheme.group_size = size == -1 ? 0 : size;
}

void expect_pattern(const ConfigReader& config, std::string_view key, std::string_view pattern) {
  try {
    (void)NamePattern(pattern);
  } catch (const std::invalid_argument& error) {
    config.fail(key, "has the pattern " + quote_name(pattern) +
                         ", which is not understood: " + error.what());
  }
}

std::vector<std::string> read_names(const ConfigReader& config, std::string_view key) {
  std::vector<std::string> names = config.get_strings(key);
  for (const std::string& name : names)
    if (name.starts_with(kPattern))
      expect_pattern(config, key, std::string_view(name).substr(kPattern.size()));
  return names;
}

void set_block(const ConfigReader& config, std::string_view key, FolderScheme& scheme) {
  const std::vector<int64_t> block = config.get_ints(key, {.min = 1, .max = 1 << 20});
  if (block.size() != 2) config.fail(key, "is no pair of numbers, outputs and columns");
  scheme.block_rows = block[0];
  scheme.block_columns = block[1];
}

void expect_fixed_and_symmetric(const ConfigReader& weights) {
  if (!weights.find_bool("symmetric").value_or(true))
    fail_value(weights, "symmetric", "false", "true");
  if (weights.find_bool("dynamic").value_or(false)) fail_value(weights, "dynamic", "true", "false");
}

void read_float8_arguments(const ConfigReader& weights, FolderScheme& scheme) {
  read_bits(weights, "num_bits", {8}, scheme);
  expect_string(weights, "type", "float");
  expect_fixed_and_symmetric(weights);
}

FolderScheme read_nvfp4(const ConfigReader& weights, FolderFormat format) {
  FolderScheme scheme = {.format = format, .group_size = 16};
  read_bits(weights, "num_bits", {4}, scheme);
  expect_string(weights, "type", "float");
  expect_string(weights, "strategy", "tensor_group");
  const int64_t size = weights.find_int("group_size").value_or(16);
  if (size != 16) fail_value(weights, "group_size", std::to_string(size), "16");
  expect_fixed_and_symmetric(weights);
  return scheme;
}

void note_float_activations(int64_t bits, bool stored, FolderQuantization& out) {
  add_note(out, "activations stay as they are, where the config asks for rounding them to " +
                    std::to_string(bits) + "-bit floats" +
                    (stored ? " with scales that are stored" : ""));
  out.stored_activation_scales = out.stored_activation_scales || stored;
}

void read_float_activations(const ConfigReader& group, int64_t only_bits, FolderQuantization& out) {
  const json::object* object = group.find_object("input_activations");
  if (!object) return;
  const ConfigReader activations = group.inside("input_activations", *object);
  expect_known_keys(activations, FolderKeys::kCompressedArguments);
  const int64_t bits = activations.find_int("num_bits").value_or(8);
  if (bits != only_bits)
    fail_value(activations, "num_bits", std::to_string(bits), std::to_string(only_bits));
  expect_string(activations, "type", "float");
  // modelopt says "dynamic": false of the number for a whole tensor.
  if (out.method == "modelopt" && only_bits == 4) return note_float_activations(bits, false, out);
  const json::value* dynamic = activations.find("dynamic");
  const bool local = only_bits == 4 && dynamic && dynamic->is_string() &&
                     activations.find_string("dynamic") == "local";
  const bool stored = !local && !activations.find_bool("dynamic").value_or(false);
  if (stored && only_bits == 4)
    fail_value(activations, "dynamic", "false: scales that are stored", "\"local\", true");
  note_float_activations(bits, stored, out);
}

void read_kv_cache(const ConfigReader& config, FolderQuantization& out) {
  const auto algorithm = config.find_string("kv_cache_quant_algo");
  // AutoFP8's word for 8-bit floats with scales that are stored.
  const json::value* value = config.find("kv_cache_scheme");
  const bool word = value && value->is_string();
  if (word) expect_string(config, "kv_cache_scheme", "static");
  const json::object* scheme = word ? nullptr : config.find_object("kv_cache_scheme");
  if (algorithm && *algorithm != "FP8" && *algorithm != "fp8")
    fail_value(config, "kv_cache_quant_algo", quote_name(*algorithm),
               "\"FP8\", and null, with which --kv-cache-dtype may be int8");
  if (scheme && !scheme->empty()) {
    const ConfigReader inside = config.inside("kv_cache_scheme", *scheme);
    expect_known_keys(inside, FolderKeys::kCompressedArguments);
    const int64_t bits = inside.require_int("num_bits");
    if (bits != 8) fail_value(inside, "num_bits", std::to_string(bits), "8");
    expect_string(inside, "type", "float");
    if (!inside.find("type")) inside.fail("type", "is missing");
  }
  out.kv_cache_floats = word || algorithm || (scheme && !scheme->empty());
  if (out.kv_cache_floats)
    add_note(out,
             "keys and values stay as they are, where the config asks for 8-bit floats: "
             "--kv-cache-dtype fp8 stores them so");
}

}  // namespace quire::formats
