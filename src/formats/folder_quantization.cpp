#include "formats/folder_quantization.h"

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "formats/folder_keys.h"
#include "formats/raw_tensor.h"

namespace quire::formats {
namespace {

constexpr std::string_view kPattern = "re:";

bool is_one_of(int64_t value, std::initializer_list<int64_t> allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

[[noreturn]] void fail_value(const ConfigReader& config, std::string_view key,
                             const std::string& value, const std::string& supported) {
  config.fail(key, "is " + value + ", which is not supported; supported: " + supported);
}

// A key that would change values and is not understood must ask for nothing.
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

// Groups that the kernels have, or are made of such.
void set_group(const ConfigReader& config, std::string_view key, int64_t size,
               FolderScheme& scheme) {
  if (size != -1 && (size < 32 || size % 32 != 0 || (size > 128 && size % 128 != 0) || size == 96))
    fail_value(config, key, std::to_string(size), "-1, 32, 64, 128 and multiples of 128");
  scheme.group_size = size == -1 ? 0 : size;
}

std::vector<std::string> read_names(const ConfigReader& config, std::string_view key) {
  std::vector<std::string> names = config.get_strings(key);
  for (const std::string& name : names) {
    if (!name.starts_with(kPattern)) continue;
    try {
      (void)NamePattern(std::string_view(name).substr(kPattern.size()));
    } catch (const std::invalid_argument& error) {
      config.fail(key, "has the pattern " + quote_name(name) +
                           ", which is not understood: " + error.what());
    }
  }
  return names;
}

void read_awq(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kAwq);
  FolderScheme scheme = {.format = FolderFormat::kAwq};
  read_bits(config, config.find("w_bit") ? "w_bit" : "bits", {4}, scheme);
  const char* group = config.find("q_group_size") ? "q_group_size" : "group_size";
  set_group(config, group, config.require_int(group), scheme);
  if (const auto version = config.find_string("version")) {
    std::string lower = *version;
    for (char& c : lower)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (lower != "gemm") fail_value(config, "version", quote_name(*version), "\"gemm\"");
  }
  if (!config.find_bool("zero_point").value_or(true))
    fail_value(config, "zero_point", "false", "true");
  out.groups = {{.scheme = scheme, .targets = {}}};
  out.excluded = read_names(config, "modules_to_not_convert");
}

void read_gptq(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kGptq);
  FolderScheme scheme = {.format = FolderFormat::kGptq};
  read_bits(config, "bits", {2, 3, 4, 8}, scheme);
  set_group(config, "group_size", config.require_int("group_size"), scheme);
  const std::string version = config.find_string("checkpoint_format").value_or("gptq");
  if (version != "gptq" && version != "gptq_v2")
    fail_value(config, "checkpoint_format", quote_name(version), "\"gptq\", \"gptq_v2\"");
  scheme.zeros_less_one = version == "gptq";
  scheme.symmetric = config.find_bool("sym").value_or(false);
  scheme.any_order = config.find_bool("desc_act").value_or(false);
  expect_string(config, "pack_dtype", "int32");
  const int64_t activations = config.find_int("act_bits").value_or(16);
  if (activations < 16) fail_value(config, "act_bits", std::to_string(activations), "16");
  // `rotation` needs a transform of activations; other layers than the first have formats of their
  // own in `dynamic`.
  for (const char* key : {"is_marlin_format", "dynamic", "rotation", "adapter"})
    expect_nothing(config, key);
  out.groups = {{.scheme = scheme, .targets = {}}};
  out.excluded = read_names(config, "modules_to_not_convert");
}

// weights of a group of compressed-tensors in "pack-quantized".
FolderScheme read_packed(const ConfigReader& weights) {
  FolderScheme scheme = {.format = FolderFormat::kPacked};
  read_bits(weights, "num_bits", {4, 8}, scheme);
  expect_string(weights, "type", "int");
  const auto size = weights.find_int("group_size");
  const std::string strategy =
      weights.find_string("strategy").value_or(size && *size > 0 ? "group" : "channel");
  if (strategy != "group" && strategy != "channel")
    fail_value(weights, "strategy", quote_name(strategy), "\"group\", \"channel\"");
  if (strategy == "group" && !size) weights.fail("group_size", "is missing");
  set_group(weights, "group_size", strategy == "group" ? *size : -1, scheme);
  scheme.symmetric = weights.find_bool("symmetric").value_or(true);
  // Other orders than "group" sort no columns of the stored matrix.
  const json::value* order = weights.find("actorder");
  if (order && order->is_bool())
    scheme.any_order = order->get_bool();
  else
    scheme.any_order = weights.find_string("actorder") == "group";
  if (weights.find_bool("dynamic").value_or(false)) fail_value(weights, "dynamic", "true", "false");
  return scheme;
}

// MXFP4: MLX's mxfp4 under other names.
FolderScheme read_mxfp4(const ConfigReader& weights) {
  FolderScheme scheme = {.format = FolderFormat::kMxfp4, .group_size = 32};
  read_bits(weights, "num_bits", {4}, scheme);
  expect_string(weights, "type", "float");
  const int64_t size = weights.find_int("group_size").value_or(32);
  if (size != 32) fail_value(weights, "group_size", std::to_string(size), "32");
  return scheme;
}

void set_block(const ConfigReader& config, std::string_view key, FolderScheme& scheme) {
  const std::vector<int64_t> block = config.get_ints(key, {.min = 1, .max = 1 << 20});
  if (block.size() != 2) config.fail(key, "is no pair of numbers, outputs and columns");
  scheme.block_rows = block[0];
  scheme.block_columns = block[1];
}

// What is said of 8-bit floats beside what shares a scale.
void read_float8_arguments(const ConfigReader& weights, FolderScheme& scheme) {
  read_bits(weights, "num_bits", {8}, scheme);
  expect_string(weights, "type", "float");
  if (!weights.find_bool("symmetric").value_or(true))
    fail_value(weights, "symmetric", "false", "true");
  if (weights.find_bool("dynamic").value_or(false)) fail_value(weights, "dynamic", "true", "false");
}

// Values of 8 bits with scales by rows, blocks or one for all.
FolderScheme read_floats(const ConfigReader& weights) {
  FolderScheme scheme = {.format = FolderFormat::kFp8};
  read_float8_arguments(weights, scheme);
  const std::string strategy = weights.find_string("strategy").value_or("missing");
  if (strategy == "block") {
    set_block(weights, "block_structure", scheme);
  } else if (strategy != "tensor" && strategy != "channel") {
    fail_value(weights, "strategy", quote_name(strategy), "\"tensor\", \"channel\", \"block\"");
  }
  return scheme;
}

// NVFP4, with a number for the whole matrix.
FolderScheme read_nvfp4(const ConfigReader& weights, FolderFormat format) {
  FolderScheme scheme = {.format = format, .group_size = 16};
  read_bits(weights, "num_bits", {4}, scheme);
  expect_string(weights, "type", "float");
  expect_string(weights, "strategy", "tensor_group");
  const int64_t size = weights.find_int("group_size").value_or(16);
  if (size != 16) fail_value(weights, "group_size", std::to_string(size), "16");
  if (!weights.find_bool("symmetric").value_or(true))
    fail_value(weights, "symmetric", "false", "true");
  if (weights.find_bool("dynamic").value_or(false)) fail_value(weights, "dynamic", "true", "false");
  return scheme;
}

std::string float_activations(int64_t bits) {
  return "activations stay as they are, where the config asks for rounding them to " +
         std::to_string(bits) + "-bit floats";
}

void add_note(FolderQuantization& out, const std::string& note) {
  if (out.note.find(note) == std::string::npos) out.note += (out.note.empty() ? "" : "; ") + note;
}

// Activations that are rounded where they are used: leaving that out is more exact. Scales of their
// own would be lost. (Those of NVFP4 are found where they are used, too: what is stored is a number
// for the whole tensor that only says how these scales are rounded.)
void read_float_activations(const ConfigReader& group, int64_t only_bits, FolderQuantization& out) {
  const json::object* object = group.find_object("input_activations");
  if (!object) return;
  const ConfigReader activations = group.inside("input_activations", *object);
  expect_known_keys(activations, FolderKeys::kCompressedArguments);
  const int64_t bits = activations.find_int("num_bits").value_or(8);
  if (bits != only_bits)
    fail_value(activations, "num_bits", std::to_string(bits), std::to_string(only_bits));
  expect_string(activations, "type", "float");
  add_note(out, float_activations(bits));
  // modelopt says "dynamic": false of the number for a whole tensor.
  if (out.method == "modelopt" && only_bits == 4) return;
  const json::value* dynamic = activations.find("dynamic");
  const bool local = only_bits == 4 && dynamic && dynamic->is_string() &&
                     activations.find_string("dynamic") == "local";
  if (!local && !activations.find_bool("dynamic").value_or(false))
    fail_value(activations, "dynamic", "false: scales that are stored",
               only_bits == 4 ? "\"local\", true" : "true");
}

// Keys and values as 8-bit floats: leaving that out is more exact, and a flag does it with scales
// of its own. Those that are stored say how to round, not what keys and values are.
void read_kv_cache(const ConfigReader& config, FolderQuantization& out) {
  const auto algorithm = config.find_string("kv_cache_quant_algo");
  const json::object* scheme = config.find_object("kv_cache_scheme");
  if (algorithm && *algorithm != "FP8")
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
  out.kv_cache_floats = algorithm || (scheme && !scheme->empty());
  if (out.kv_cache_floats)
    add_note(out,
             "keys and values stay as they are, where the config asks for 8-bit floats: "
             "--kv-cache-dtype fp8 stores them so");
}

void read_fp8(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kFp8);
  FolderScheme scheme = {.format = FolderFormat::kFp8, .bits = 8};
  expect_string(config, "fmt", "e4m3");
  read_kv_cache(config, out);
  if (config.find("weight_block_size")) set_block(config, "weight_block_size", scheme);
  const std::string activations = config.find_string("activation_scheme").value_or("dynamic");
  if (activations != "dynamic")
    fail_value(config, "activation_scheme", quote_name(activations), "\"dynamic\"");
  add_note(out, float_activations(8));
  out.groups = {{.scheme = scheme, .targets = {}}};
  out.excluded = read_names(config, "modules_to_not_convert");
  for (std::string& name : read_names(config, "ignored_layers"))
    out.excluded.push_back(std::move(name));
}

void expect_no_activations(const ConfigReader& group, std::string_view key) {
  const json::object* activations = group.find_object(key);
  if (!activations) return;
  const ConfigReader reader = group.inside(key, *activations);
  group.fail(key, "asks for activations of " +
                      std::to_string(reader.find_int("num_bits").value_or(8)) +
                      " bits, which is not supported with this format");
}

FolderScheme read_group_scheme(const ConfigReader& config, const ConfigReader& group,
                               FolderQuantization& out) {
  const bool own = group.find("format") != nullptr;
  const ConfigReader& from = own ? group : config;
  const std::string format = from.find_string("format").value_or("missing");
  if (format != "pack-quantized" && format != "float-quantized" &&
      format != "mxfp4-pack-quantized" && format != "nvfp4-pack-quantized")
    fail_value(from, "format", quote_name(format),
               "\"pack-quantized\", \"float-quantized\", \"mxfp4-pack-quantized\", "
               "\"nvfp4-pack-quantized\"");
  const json::object* object = group.find_object("weights");
  if (!object) group.fail("weights", "is missing");
  const ConfigReader weights = group.inside("weights", *object);
  expect_known_keys(weights, FolderKeys::kCompressedArguments);
  expect_no_activations(group, "output_activations");
  if (format == "float-quantized") {
    read_float_activations(group, 8, out);
    return read_floats(weights);
  }
  if (format == "nvfp4-pack-quantized") {
    read_float_activations(group, 4, out);
    return read_nvfp4(weights, FolderFormat::kNvfp4);
  }
  expect_no_activations(group, "input_activations");
  return format == "pack-quantized" ? read_packed(weights) : read_mxfp4(weights);
}

void read_compressed(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kCompressed);
  read_kv_cache(config, out);
  expect_nothing(config, "transform_config");
  if (const json::object* sparsity = config.find_object("sparsity_config"))
    if (!sparsity->empty())
      expect_string(config.inside("sparsity_config", *sparsity), "format", "dense");
  expect_string(config, "quantization_status", "compressed");
  const json::object* groups = config.find_object("config_groups");
  if (!groups || groups->empty()) config.fail("config_groups", "is missing or empty");
  const ConfigReader all = config.inside("config_groups", *groups);
  for (const auto& entry : *groups) {
    const std::string_view name(entry.key().data(), entry.key().size());
    const json::object* object = all.find_object(name);
    if (!object) all.fail(name, "is null");
    const ConfigReader group = all.inside(name, *object);
    expect_known_keys(group, FolderKeys::kCompressedGroup);
    out.groups.push_back(
        {.scheme = read_group_scheme(config, group, out), .targets = read_names(group, "targets")});
  }
  out.excluded = read_names(config, "ignore");
}

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

// What becomes of weights and activations by one of modelopt's algorithms.
FolderScheme read_algorithm(const ConfigReader& config) {
  const std::string algorithm = config.find_string("quant_algo").value_or("missing");
  FolderScheme scheme = {.format = FolderFormat::kFp8, .bits = 8};
  if (algorithm == "FP8" || algorithm == "FP8_PER_CHANNEL_PER_TOKEN") return scheme;
  if (algorithm == "FP8_PB_WO") {
    scheme.block_rows = scheme.block_columns = 128;
    return scheme;
  }
  if (algorithm != "NVFP4")
    fail_value(config, "quant_algo", quote_name(algorithm),
               "\"NVFP4\", \"FP8_PER_CHANNEL_PER_TOKEN\", \"FP8_PB_WO\", and \"FP8\" without "
               "scales of activations; take the model's unquantised checkpoint");
  return {.format = FolderFormat::kModeloptNvfp4, .bits = 4, .group_size = 16};
}

// Groups in the words of compressed-tensors, which say what quant_algo does, and more of
// activations.
void read_modelopt_groups(const ConfigReader& config, const json::object& groups,
                          FolderScheme scheme, FolderQuantization& out) {
  const ConfigReader all = config.inside("config_groups", groups);
  for (const auto& entry : groups) {
    const std::string_view name(entry.key().data(), entry.key().size());
    const json::object* object = all.find_object(name);
    if (!object) all.fail(name, "is null");
    const ConfigReader group = all.inside(name, *object);
    expect_known_keys(group, FolderKeys::kCompressedGroup);
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
}

// What hf_quant_config.json says, or the same in config.json, or there in the words of
// compressed-tensors.
void read_modelopt(const ConfigReader& top, FolderQuantization& out) {
  const json::object* inner = top.find_object("quantization");
  const ConfigReader config = inner ? top.inside("quantization", *inner) : top;
  expect_known_keys(top, FolderKeys::kModelopt);
  if (inner) expect_known_keys(config, FolderKeys::kModeloptInner);
  const FolderScheme scheme = read_algorithm(config);
  const std::string algorithm = *config.find_string("quant_algo");
  read_kv_cache(config, out);
  const int64_t usual = scheme.group_size ? scheme.group_size : scheme.block_columns;
  const int64_t size = config.find_int("group_size").value_or(usual);
  if (usual && size != usual)
    fail_value(config, "group_size", std::to_string(size), std::to_string(usual));
  const json::object* groups = config.find_object("config_groups");
  if (groups) read_modelopt_groups(config, *groups, scheme, out);
  if (algorithm == "FP8" && (!groups || groups->empty()))
    config.fail(
        "quant_algo",
        "is \"FP8\", which rounds activations to 8-bit floats with scales that are stored "
        "(\"input_scale\"); that is not supported; take the model's unquantised checkpoint");
  if (algorithm == "NVFP4" || algorithm == "FP8_PER_CHANNEL_PER_TOKEN")
    add_note(out, float_activations(scheme.bits));
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

// The parts of a name that dots part, in a row anywhere in it.
bool contains_parts(const std::string& layer, const std::string& parts) {
  return ("." + layer + ".").find("." + parts + ".") != std::string::npos;
}

}  // namespace

const FolderScheme* FolderQuantization::of_layer(const std::string& layer) const {
  const auto matches = [&](const std::string& name) {
    if (!name.starts_with(kPattern)) return contains_parts(layer, name);
    try {
      return NamePattern(std::string_view(name).substr(kPattern.size())).begins(layer);
    } catch (const std::invalid_argument& error) {
      throw LoadError(file + ": the pattern " + quote_name(name) +
                      " in quantization_config: " + error.what());
    }
  };
  if (std::ranges::any_of(excluded, matches)) return nullptr;
  const Group* of_class = nullptr;
  for (const Group& group : groups) {
    if (group.targets.empty()) return &group.scheme;
    if (std::ranges::any_of(group.targets, matches)) return &group.scheme;
    if (std::ranges::find(group.targets, "Linear") != group.targets.end() && !of_class)
      of_class = &group;
  }
  return of_class ? &of_class->scheme : nullptr;
}

bool FolderQuantization::has_integers() const {
  return std::ranges::any_of(groups, [](const Group& group) {
    const FolderFormat format = group.scheme.format;
    return format == FolderFormat::kAwq || format == FolderFormat::kGptq ||
           format == FolderFormat::kPacked;
  });
}

std::string FolderQuantization::title() const {
  const FolderScheme& scheme = groups.front().scheme;
  const std::string bits = std::to_string(scheme.bits) + "-bit ";
  if (scheme.format == FolderFormat::kFp8)
    return bits + "floats (" + method + ")" +
           (scheme.block_rows ? " in blocks of " + std::to_string(scheme.block_rows) + " x " +
                                    std::to_string(scheme.block_columns)
                              : "");
  const char* kind = scheme.format == FolderFormat::kMxfp4           ? "mxfp4"
                     : scheme.format == FolderFormat::kNvfp4         ? "nvfp4"
                     : scheme.format == FolderFormat::kModeloptNvfp4 ? "nvfp4"
                     : scheme.format == FolderFormat::kNf4           ? "nf4"
                                                                     : nullptr;
  return bits + (kind ? kind + (" (" + method) + ")" : method) +
         (scheme.group_size ? " in groups of " + std::to_string(scheme.group_size)
                            : std::string(" by rows"));
}

std::optional<FolderQuantization> read_folder_quantization(const HfConfig& config) {
  if (config.quantization.is_null()) return std::nullopt;
  const bool beside = !config.quantization_file.empty();
  const std::string& file = beside ? config.quantization_file : config.file;
  const ConfigReader reader(file, config.quantization.get_object(), nullptr,
                            beside ? "quantization." : "quantization_config.");
  const auto method = reader.find_string("quant_method");
  if (!method) return std::nullopt;
  FolderQuantization out;
  out.method = *method;
  out.file = file;
  if (*method == "awq") {
    read_awq(reader, out);
  } else if (*method == "gptq") {
    read_gptq(reader, out);
  } else if (*method == "compressed-tensors") {
    read_compressed(reader, out);
  } else if (*method == "fp8") {
    read_fp8(reader, out);
  } else if (*method == "modelopt") {
    read_modelopt(reader, out);
  } else if (*method == "bitsandbytes") {
    read_bitsandbytes(reader, out);
  } else {
    return std::nullopt;
  }
  return out;
}

}  // namespace quire::formats
