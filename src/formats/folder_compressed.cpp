#include "formats/folder_readers.h"

#include <algorithm>

#include "formats/folder_keys.h"
#include "formats/raw_tensor.h"

namespace quire::formats {
namespace {

// weights of a group of compressed-tensors in "pack-quantized" or "int-quantized".
FolderScheme read_whole_numbers(const ConfigReader& weights, FolderFormat format) {
  FolderScheme scheme = {.format = format};
  read_bits(weights, "num_bits", {4, 8}, scheme);
  if (format == FolderFormat::kInt8) scheme.bits = 8;  // as they are stored
  expect_string(weights, "type", "int");
  const auto size = weights.find_int("group_size");
  const std::string strategy =
      weights.find_string("strategy").value_or(size && *size > 0 ? "group" : "channel");
  const bool one_scale = format == FolderFormat::kInt8 && strategy == "tensor";
  if (strategy != "group" && strategy != "channel" && !one_scale)
    fail_value(weights, "strategy", quote_name(strategy),
               format == FolderFormat::kInt8 ? "\"group\", \"channel\", \"tensor\""
                                             : "\"group\", \"channel\"");
  if (strategy == "group" && !size) weights.fail("group_size", "is missing");
  set_group(weights, "group_size", strategy == "group" ? *size : -1, scheme);
  scheme.symmetric = weights.find_bool("symmetric").value_or(true);
  if (format == FolderFormat::kInt8 && !scheme.symmetric)
    fail_value(weights, "symmetric", "false", "true");
  // Other orders than these two, which are one, sort no columns of the stored matrix.
  const json::value* order = weights.find("actorder");
  if (order && order->is_bool()) {
    scheme.any_order = order->get_bool();
  } else {
    const auto name = weights.find_string("actorder");
    scheme.any_order = name == "group" || name == "dynamic";
  }
  if (format == FolderFormat::kInt8 && scheme.any_order)
    fail_value(weights, "actorder", "an order of groups", "null, \"static\", \"weight\"");
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
  expect_string(weights, "strategy", "group");
  expect_fixed_and_symmetric(weights);
  return scheme;
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

void expect_no_activations(const ConfigReader& group, std::string_view key) {
  const json::object* activations = group.find_object(key);
  if (!activations) return;
  const ConfigReader reader = group.inside(key, *activations);
  group.fail(key, "asks for activations of " +
                      std::to_string(reader.find_int("num_bits").value_or(8)) +
                      " bits, which is not supported with this format");
}

// Whether they are to be rounded to 8 bits by tokens. Throws LoadError if it is another way.
bool read_token_activations(const ConfigReader& group) {
  const json::object* object = group.find_object("input_activations");
  if (!object) return false;
  const ConfigReader activations = group.inside("input_activations", *object);
  expect_known_keys(activations, FolderKeys::kCompressedArguments);
  const int64_t bits = activations.find_int("num_bits").value_or(8);
  if (bits != 8) fail_value(activations, "num_bits", std::to_string(bits), "8");
  expect_string(activations, "type", "int");
  if (!activations.find_bool("dynamic").value_or(false))
    fail_value(activations, "dynamic", "false: scales that are stored", "true");
  expect_string(activations, "strategy", "token");
  if (!activations.find("strategy")) activations.fail("strategy", "is missing");
  if (!activations.find_bool("symmetric").value_or(true))
    fail_value(activations, "symmetric", "false", "true");
  return true;
}

FolderScheme read_group_scheme(const ConfigReader& config, const ConfigReader& group,
                               FolderQuantization& out) {
  const bool own = group.find("format") != nullptr;
  const ConfigReader& from = own ? group : config;
  const std::string format = from.find_string("format").value_or("missing");
  // The older name of both "float-quantized" and "int-quantized".
  const bool naive = format == "naive-quantized";
  if (format != "pack-quantized" && format != "int-quantized" && format != "float-quantized" &&
      !naive && format != "mxfp4-pack-quantized" && format != "nvfp4-pack-quantized")
    fail_value(from, "format", quote_name(format),
               "\"pack-quantized\", \"int-quantized\", \"float-quantized\", "
               "\"mxfp4-pack-quantized\", \"nvfp4-pack-quantized\"");
  const json::object* object = group.find_object("weights");
  if (!object) group.fail("weights", "is missing");
  const ConfigReader weights = group.inside("weights", *object);
  expect_known_keys(weights, FolderKeys::kCompressedArguments);
  expect_no_activations(group, "output_activations");
  if (naive && !weights.find("type")) weights.fail("type", "is missing");
  const bool naive_integers = naive && weights.find_string("type") == "int";
  if (format == "float-quantized" || (naive && !naive_integers)) {
    read_float_activations(group, 8, out);
    return read_floats(weights);
  }
  if (format == "nvfp4-pack-quantized") {
    read_float_activations(group, 4, out);
    return read_nvfp4(weights, FolderFormat::kNvfp4);
  }
  if (format == "mxfp4-pack-quantized") {
    expect_no_activations(group, "input_activations");
    return read_mxfp4(weights);
  }
  FolderScheme scheme = read_whole_numbers(
      weights, format == "pack-quantized" ? FolderFormat::kPacked : FolderFormat::kInt8);
  scheme.rounds_per_token = read_token_activations(group);
  return scheme;
}

bool is_pattern(const std::string& target) { return target.starts_with(kPattern); }

// A layer's own name counts before patterns, in whichever group it is.
void put_names_first(std::vector<FolderQuantization::Group>& groups) {
  std::vector<FolderQuantization::Group> named = groups;
  for (FolderQuantization::Group& group : named)
    std::erase_if(group.targets, [](const std::string& target) {
      return is_pattern(target) || target == "Linear";
    });
  std::erase_if(named, [](const auto& group) { return group.targets.empty(); });
  const auto first = std::ranges::find_if(
      groups, [](const auto& group) { return std::ranges::any_of(group.targets, is_pattern); });
  groups.insert(first, named.begin(), named.end());
}

}  // namespace

void read_compressed(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kCompressed);
  read_kv_cache(config, out);
  expect_nothing(config, "transform_config");
  if (const json::object* sparsity = config.find_object("sparsity_config"))
    if (!sparsity->empty())
      expect_string(config.inside("sparsity_config", *sparsity), "format", "dense");
  // Before that, values are not final.
  const std::string status = config.find_string("quantization_status").value_or("compressed");
  if (status != "compressed" && status != "frozen")
    fail_value(config, "quantization_status", quote_name(status), "\"compressed\", \"frozen\"");
  const json::object* groups = config.find_object("config_groups");
  const bool has_groups = groups && !groups->empty();
  if (!has_groups && !out.kv_cache_floats) config.fail("config_groups", "is missing or empty");
  if (!has_groups) return;
  for_each_object(config, "config_groups", *groups, [&](const auto&, const ConfigReader& group) {
    expect_known_keys(group, FolderKeys::kCompressedGroup);
    out.groups.push_back(
        {.scheme = read_group_scheme(config, group, out), .targets = read_names(group, "targets")});
  });
  put_names_first(out.groups);
  out.excluded = read_names(config, "ignore");
}

}  // namespace quire::formats
