#include "formats/quantization.h"

#include <algorithm>

#include "base/error.h"
#include "formats/folder_keys.h"
#include "formats/folder_quantization.h"

namespace quire::formats {
namespace {

constexpr const char* kRemedy =
    "; supported are MLX's affine 2, 3, 4, 5, 6 and 8 bits in groups of 32, 64 or 128, and its "
    "mxfp4, mxfp8 and nvfp4, AWQ, GPTQ, compressed-tensors, fp8, modelopt and bitsandbytes: take "
    "the model's unquantised checkpoint, or make one with `quire quantize`";

[[noreturn]] void refuse(const HfConfig& config, const std::string& what) {
  throw LoadError(config.file + ": " + what + kRemedy);
}

QuantMode read_mode(const HfConfig& config, const ConfigReader& reader, const std::string& where) {
  const std::string name = reader.find_string("mode").value_or(mode_name(QuantMode::kAffine));
  const std::optional<QuantMode> mode = parse_mode(name);
  if (!mode) refuse(config, where + " has mode " + quote_name(name) + ", which is not supported");
  return *mode;
}

void check_format(const HfConfig& config, const std::string& where, const QuantisedFormat& format) {
  const auto no_support = [&](const std::string& what) {
    refuse(config, where + " has " + what + ", which is not supported");
  };
  const std::string bits = std::to_string(format.bits) + " bits";
  const std::string groups = "groups of " + std::to_string(format.group_size);
  if (format.mode != QuantMode::kAffine) {
    if (format != usual_format(format.mode))
      no_support(bits + " in " + groups + " of mode " + mode_name(format.mode));
    return;
  }
  if (format.bits < 2 || format.bits == 7 || format.bits > 8) no_support(bits);
  if (format.group_size != 32 && format.group_size != 64 && format.group_size != 128)
    no_support(groups);
}

// `defaults` are of the same mode.
QuantisedFormat read_format(const HfConfig& config, const ConfigReader& reader,
                            const std::string& where, const QuantisedFormat& defaults) {
  const int64_t bits = reader.find_int("bits").value_or(defaults.bits);
  const QuantisedFormat format = {
      .bits = static_cast<int>(std::clamp<int64_t>(bits, 0, 64)),
      .group_size = reader.find_int("group_size").value_or(defaults.group_size),
      .mode = defaults.mode};
  check_format(config, where, format);
  return format;
}

}  // namespace

const char* mode_name(QuantMode mode) {
  constexpr const char* kNames[] = {"affine", "mxfp4", "mxfp8", "nvfp4"};
  return kNames[static_cast<int>(mode)];
}

std::optional<QuantMode> parse_mode(const std::string& name) {
  for (const QuantMode mode : kQuantModes)
    if (name == mode_name(mode)) return mode;
  return std::nullopt;
}

QuantisedFormat usual_format(QuantMode mode) {
  switch (mode) {
    case QuantMode::kMxfp4:
      return {.bits = 4, .group_size = 32, .mode = mode};
    case QuantMode::kMxfp8:
      return {.bits = 8, .group_size = 32, .mode = mode};
    case QuantMode::kNvfp4:
      return {.bits = 4, .group_size = 16, .mode = mode};
    case QuantMode::kAffine:
      break;
  }
  return {.bits = 4, .group_size = 64, .mode = QuantMode::kAffine};
}

std::optional<QuantisedFormat> QuantizationConfig::of_layer(const std::string& layer) const {
  const auto found = layers.find(layer);
  return found == layers.end() ? std::optional(defaults) : found->second;
}

bool QuantizationConfig::demands(const std::string& layer) const {
  const auto found = layers.find(layer);
  return found != layers.end() && found->second.has_value();
}

std::optional<QuantizationConfig> read_quantization_config(const HfConfig& config) {
  if (config.quantization.is_null()) return std::nullopt;
  const json::object& object = config.quantization.get_object();
  const ConfigReader reader(config.file, object, nullptr, "quantization.");
  const auto method = reader.find_string("quant_method");
  // OpenAI's own: nothing to know of tensors whose names say it (gpt-oss).
  if (method == "mxfp4") {
    expect_known_keys(reader, FolderKeys::kMxfp4);
    return std::nullopt;
  }
  if (read_folder_quantization(config)) return std::nullopt;
  if (method) refuse(config, "the weights are quantised by " + quote_name(*method));
  const QuantMode mode = read_mode(config, reader, "\"quantization\"");
  if (mode == QuantMode::kAffine && (!reader.find("bits") || !reader.find("group_size")))
    refuse(config, "\"quantization\" does not say bits and group_size");
  QuantizationConfig out;
  out.defaults = read_format(config, reader, "\"quantization\"", usual_format(mode));
  for (const auto& entry : object) {
    const std::string layer(entry.key().data(), entry.key().size());
    const json::value& value = entry.value();
    // Only layers have an object or a truth value; the keys of all have neither.
    if (value.is_bool()) {
      out.layers[layer] = value.get_bool() ? std::optional(out.defaults) : std::nullopt;
    } else if (value.is_object()) {
      const ConfigReader of_layer = reader.inside(layer, value.get_object());
      expect_known_keys(of_layer, FolderKeys::kMlx);
      const std::string where = "\"quantization\" of layer " + quote_name(layer);
      const QuantMode of = read_mode(config, of_layer, where);
      out.layers[layer] = read_format(config, of_layer, where,
                                      of == out.defaults.mode ? out.defaults : usual_format(of));
    } else {
      expect_known_key(reader, FolderKeys::kMlx, layer, value);
    }
  }
  return out;
}

}  // namespace quire::formats
