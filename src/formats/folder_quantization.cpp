#include "formats/folder_quantization.h"

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "formats/folder_readers.h"
#include "formats/raw_tensor.h"

namespace quire::formats {
namespace {

// The parts of a name that dots part, in a row anywhere in it.
bool contains_parts(const std::string& layer, const std::string& parts) {
  const auto is_edge = [&](size_t at) { return at == layer.size() || layer[at] == '.'; };
  for (size_t at = layer.find(parts); at != std::string::npos; at = layer.find(parts, at + 1))
    if ((at == 0 || layer[at - 1] == '.') && is_edge(at + parts.size())) return true;
  return false;
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
  const Group* others = nullptr;
  for (const Group& group : groups) {
    if (std::ranges::any_of(group.targets, matches)) return group.plain ? nullptr : &group.scheme;
    const bool all =
        group.targets.empty() || std::ranges::find(group.targets, "Linear") != group.targets.end();
    if (all && !others) others = &group;
  }
  return others ? &others->scheme : nullptr;
}

bool FolderQuantization::has_integers() const {
  return std::ranges::any_of(groups, [](const Group& group) {
    return group.scheme.format != FolderFormat::kFp8 && group.scheme.format != FolderFormat::kNf4;
  });
}

bool FolderQuantization::rounds_per_token() const {
  return std::ranges::any_of(groups,
                             [](const Group& group) { return group.scheme.rounds_per_token; });
}

std::string FolderQuantization::title() const {
  if (groups.empty()) return "not quantised (" + method + ")";
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
                            config.quantization_path);
  const auto method = reader.find_string("quant_method");
  if (!method) return std::nullopt;
  FolderQuantization out;
  out.method = *method;
  out.file = file;
  if (*method == "awq") {
    read_awq(reader, out);
  } else if (*method == "gptq") {
    read_gptq(reader, out);
  } else if (*method == "auto-round") {
    read_auto_round(reader, out);
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
