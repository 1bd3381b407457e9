#include "formats/folder_readers.h"

#include "formats/folder_keys.h"
#include "formats/raw_tensor.h"

namespace quire::formats {

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

}  // namespace quire::formats
