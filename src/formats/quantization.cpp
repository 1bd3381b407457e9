#include "formats/quantization.h"

#include "base/error.h"

namespace quire::formats {
namespace {

constexpr const char* kRemedy =
    "; supported are MLX's affine 2, 3, 4, 5, 6 and 8 bits in groups of 32, 64 or 128: take the "
    "model's unquantised checkpoint, or make one with `quire quantize`";

[[noreturn]] void refuse(const HfConfig& config, const std::string& what) {
  throw LoadError(config.file + ": " + what + kRemedy);
}

void check_mode(const HfConfig& config, const ConfigReader& reader, const std::string& where) {
  const std::string mode = reader.find_string("mode").value_or("affine");
  if (mode != "affine")
    refuse(config, where + " has mode " + quote_name(mode) + ", which is not supported");
}

AffineConfig read_affine(const HfConfig& config, const ConfigReader& reader,
                         const std::string& where, const AffineConfig& defaults) {
  check_mode(config, reader, where);
  AffineConfig out;
  const int64_t bits = reader.find_int("bits").value_or(defaults.bits);
  out.group_size = reader.find_int("group_size").value_or(defaults.group_size);
  if (bits < 2 || bits == 7 || bits > 8)
    refuse(config, where + " has " + std::to_string(bits) + " bits, which is not supported");
  if (out.group_size != 32 && out.group_size != 64 && out.group_size != 128) {
    refuse(config,
           where + " has groups of " + std::to_string(out.group_size) + ", which is not supported");
  }
  out.bits = static_cast<int>(bits);
  return out;
}

}  // namespace

std::optional<AffineConfig> QuantizationConfig::of_layer(const std::string& layer) const {
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
  if (const auto method = reader.find_string("quant_method"))
    refuse(config, "the weights are quantised by " + quote_name(*method));
  if (!reader.find("bits") || !reader.find("group_size"))
    refuse(config, "\"quantization\" does not say bits and group_size");
  QuantizationConfig out;
  out.defaults = read_affine(config, reader, "\"quantization\"", {});
  for (const auto& entry : object) {
    const std::string layer(entry.key().data(), entry.key().size());
    const json::value& value = entry.value();
    // Only layers have an object or a truth value.
    if (value.is_bool()) {
      out.layers[layer] = value.get_bool() ? std::optional(out.defaults) : std::nullopt;
    } else if (value.is_object()) {
      out.layers[layer] =
          read_affine(config, reader.inside(layer, value.get_object()),
                      "\"quantization\" of layer " + quote_name(layer), out.defaults);
    }
  }
  return out;
}

}  // namespace quire::formats
