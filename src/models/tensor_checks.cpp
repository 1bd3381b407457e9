#include "models/tensor_checks.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"
#include "ops/linear/block_float/block_float.h"

namespace quire::models {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + (shape[i] < 0 ? "*" : std::to_string(shape[i]));
  return text + "]";
}

bool has_shape(const formats::RawTensor& tensor, const std::vector<int64_t>& expected) {
  const auto fits = [](int64_t length, int64_t wanted) { return wanted < 0 || length == wanted; };
  return std::equal(tensor.shape.begin(), tensor.shape.end(), expected.begin(), expected.end(),
                    fits);
}

const char* config_of(const formats::RawTensor& tensor) {
  return tensor.stored_name.empty() ? "config.json" : "the metadata";
}

void expect_shape(const formats::RawTensor& tensor, const std::vector<int64_t>& expected) {
  if (has_shape(tensor, expected)) return;
  throw LoadError(where(tensor) + " has shape " + shape_text(tensor.shape) + ", but " +
                  config_of(tensor) + " asks for " + shape_text(expected) + kNotOfOneModel);
}

void refuse_rounding(const formats::RawTensor& values) {
  throw LoadError(where(values) +
                  " goes with activations that are rounded to 8 bits, as the config asks, but is "
                  "not multiplied in that form here; --quant-activations none keeps them as they "
                  "are");
}

bool is_folder_values(const formats::RawTensor& tensor) {
  const bool bytes = tensor.dtype == formats::DType::kF8E4M3 ||
                     tensor.dtype == formats::DType::kU8 || tensor.dtype == formats::DType::kI8;
  if (bytes && tensor.name.ends_with(".weight")) return true;
  return std::ranges::any_of(kFolderSuffixes,
                             [&](const char* suffix) { return tensor.name.ends_with(suffix); });
}

bool is_packed_float8(const formats::FolderScheme& scheme, int64_t k) {
  const int64_t group = ops::block_float_format(ops::BlockFloat::kFloat8).group_size;
  return scheme.block_rows == 0 || scheme.block_columns % group == 0 || scheme.block_columns >= k;
}

std::string layer_name(const std::string& weight) {
  for (const std::string suffix : {".weight", kFolderSuffixes[0], kFolderSuffixes[1]})
    if (weight.ends_with(suffix)) return weight.substr(0, weight.size() - suffix.size());
  return weight;
}

std::string scales_name(const std::string& weight) { return layer_name(weight) + ".scales"; }
std::string biases_name(const std::string& weight) { return layer_name(weight) + ".biases"; }

std::string weight_name(const std::string& name) {
  for (const char* suffix : {".scales", ".biases"})
    if (name.ends_with(suffix)) return name.substr(0, name.size() - 7) + ".weight";
  return name;
}

bool is_of_layer(const std::string& name, const std::set<std::string>& layers) {
  for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
    if (layers.contains(name.substr(0, dot))) return true;
  return false;
}

std::string expert_name(const std::string& pattern, int64_t expert) {
  const size_t star = pattern.find('*');
  if (star == std::string::npos) return pattern;
  return pattern.substr(0, star) + std::to_string(expert) + pattern.substr(star + 1);
}

}  // namespace quire::models
