#include "formats/folder_readers.h"

#include "formats/folder_keys.h"
#include "formats/raw_tensor.h"

namespace quire::formats {
namespace {

// What AWQ, GPTQ and AutoRound say beside bits and groups, in words that they share.
void expect_plain_integers(const ConfigReader& config) {
  expect_string(config, "method", *config.find_string("quant_method"));
  expect_string(config, "pack_dtype", "int32");
  expect_string(config, "data_type", "int");
  const int64_t activations = config.find_int("act_bits").value_or(16);
  if (activations < 16) fail_value(config, "act_bits", std::to_string(activations), "16");
  if (config.find("act_bits")) return;
  for (const char* key : {"act_data_type", "act_dynamic", "act_group_size", "act_sym"})
    expect_nothing(config, key);
}

void expect_gemm(const ConfigReader& config, std::string_view key) {
  const auto version = config.find_string(key);
  if (!version) return;
  std::string lower = *version;
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (lower != "gemm") fail_value(config, key, quote_name(*version), "\"gemm\"");
}

// The file's version under the key that later programs write, or the one before that.
std::string gptq_version(const ConfigReader& config) {
  const auto later = config.find_string("format"), first = config.find_string("checkpoint_format");
  const std::string_view key = later ? "format" : "checkpoint_format";
  const std::string version = later ? *later : first.value_or("gptq");
  if (version != "gptq" && version != "gptq_v2")
    fail_value(config, key, quote_name(version), "\"gptq\", \"gptq_v2\"");
  if (first && *first != version)
    fail_value(config, "checkpoint_format", quote_name(*first), "what \"format\" says");
  return version;
}

}  // namespace

void read_awq(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kAwq);
  expect_plain_integers(config);
  FolderScheme scheme = {.format = FolderFormat::kAwq};
  read_bits(config, config.find("w_bit") ? "w_bit" : "bits", {4}, scheme);
  const char* group = config.find("q_group_size") ? "q_group_size" : "group_size";
  set_group(config, group, config.require_int(group), scheme);
  for (const char* key : {"version", "format", "checkpoint_format"}) expect_gemm(config, key);
  // Zero points are stored in any case. "sym" says the same; "desc_act" was the search's order:
  // the tensors have none.
  (void)config.find_bool("sym");
  (void)config.find_bool("desc_act");
  scheme.symmetric = !config.find_bool("zero_point").value_or(true);
  out.groups = {{.scheme = scheme, .targets = {}}};
  out.excluded = read_names(config, "modules_to_not_convert");
}

void read_gptq(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kGptq);
  expect_plain_integers(config);
  FolderScheme scheme = {.format = FolderFormat::kGptq};
  read_bits(config, "bits", {2, 3, 4, 8}, scheme);
  set_group(config, "group_size", config.require_int("group_size"), scheme);
  scheme.zeros_less_one = gptq_version(config) == "gptq";
  scheme.symmetric = config.find_bool("sym").value_or(false);
  scheme.any_order = config.find_bool("desc_act").value_or(false);
  // `rotation` needs a transform of activations; other layers than the first have formats of their
  // own in `dynamic`.
  for (const char* key : {"is_marlin_format", "dynamic", "rotation", "adapter"})
    expect_nothing(config, key);
  out.groups = {{.scheme = scheme, .targets = {}}};
  out.excluded = read_names(config, "modules_to_not_convert");
}

}  // namespace quire::formats
