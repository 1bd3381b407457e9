#include "formats/folder_readers.h"

#include <algorithm>
#include <iterator>

#include "formats/folder_keys.h"
#include "formats/raw_tensor.h"

namespace quire::formats {
namespace {

// What AWQ, GPTQ and AutoRound say beside bits and groups, in words that they share.
void expect_plain_integers(const ConfigReader& config) {
  expect_string(config, "data_type", "int");
  const int64_t activations = config.find_int("act_bits").value_or(16);
  if (activations < 16) fail_value(config, "act_bits", std::to_string(activations), "16");
  if (config.find("act_bits")) return;
  for (const char* key : {"act_data_type", "act_dynamic", "act_group_size", "act_sym"})
    expect_nothing(config, key);
}

void expect_method(const ConfigReader& config) {
  expect_string(config, "method", *config.find_string("quant_method"));
  expect_string(config, "pack_dtype", "int32");
  expect_plain_integers(config);
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

// What of `scheme` is other for some layers.
void read_rule(const ConfigReader& rule, std::initializer_list<int64_t> bits,
               FolderScheme& scheme) {
  expect_known_keys(rule, FolderKeys::kIntegerRule);
  expect_plain_integers(rule);
  if (rule.find("bits")) read_bits(rule, "bits", bits, scheme);
  if (const auto size = rule.find_int("group_size")) set_group(rule, "group_size", *size, scheme);
  scheme.symmetric = rule.find_bool("sym").value_or(scheme.symmetric);
  scheme.any_order = rule.find_bool("desc_act").value_or(scheme.any_order);
}

// GPTQModel's rules for the layers whose names begin as a pattern says: "-:" before it leaves them
// as they are, "+:" or nothing gives them values of their own. The first that fits counts.
void read_dynamic(const ConfigReader& config, std::initializer_list<int64_t> bits,
                  FolderQuantization& out) {
  const json::object* rules = config.find_object("dynamic");
  if (!rules) return;
  const ConfigReader all = config.inside("dynamic", *rules);
  for (const auto& entry : *rules) {
    const std::string_view key(entry.key().data(), entry.key().size());
    const bool plain = key.starts_with("-:");
    const std::string_view pattern = key.substr(plain || key.starts_with("+:") ? 2 : 0);
    expect_pattern(all, key, pattern);
    FolderQuantization::Group group = {.scheme = out.groups.front().scheme,
                                       .targets = {std::string(kPattern).append(pattern)},
                                       .plain = plain};
    const json::object* rule = all.find_object(key);
    if (rule && !plain) read_rule(all.inside(key, *rule), bits, group.scheme);
    out.groups.push_back(std::move(group));
  }
}

// AutoRound's layers with values of their own: those with their own names count, then the patterns,
// which may begin anywhere in a name, in their order. Those of 16 bits and more are not quantised.
template <class ReadRule>
void read_extra(const ConfigReader& config, const ReadRule& read_rule, FolderQuantization& out) {
  const json::object* object = config.find_object("extra_config");
  if (!object) return;
  const ConfigReader all = config.inside("extra_config", *object);
  std::vector<FolderQuantization::Group> patterns;
  for (const auto& entry : *object) {
    const std::string name(entry.key().data(), entry.key().size());
    const bool pattern = name.find_first_of("*+?^$()[]{}|\\") != std::string::npos;
    FolderQuantization::Group group = {.scheme = out.groups.front().scheme, .targets = {name}};
    if (pattern) {
      expect_pattern(all, name, name);
      group.targets = {std::string(kPattern) + ".*(?:" + name + ")"};
    }
    if (const json::object* rule = all.find_object(name)) {
      const ConfigReader own = all.inside(name, *rule);
      group.plain = own.find_int("bits").value_or(0) >= 16;
      if (!group.plain) read_rule(own, group.scheme);
    }
    (pattern ? patterns : out.groups).push_back(std::move(group));
  }
  std::ranges::move(patterns, std::back_inserter(out.groups));
}

constexpr std::initializer_list<int64_t> kAwqBits = {4}, kGptqBits = {2, 3, 4, 8};

// Of MXFP4 and NVFP4, with the tensors of compressed-tensors.
void read_auto_round_floats(const ConfigReader& config, FolderQuantization& out) {
  expect_string(config, "method", "auto-round");
  const std::string type = config.find_string("data_type").value_or("missing");
  const bool is_nvfp4 = type == "nv_fp";
  if (!is_nvfp4 && type != "mx_fp")
    fail_value(config, "data_type", quote_name(type), "\"mx_fp\", \"nv_fp\"");
  FolderScheme scheme = {
      .format = is_nvfp4 ? FolderFormat::kNvfp4 : FolderFormat::kMxfp4,
      .group_size = is_nvfp4 ? 16 : 32,
  };
  read_bits(config, "bits", {4}, scheme);
  const int64_t size = config.require_int("group_size");
  if (size != scheme.group_size)
    fail_value(config, "group_size", std::to_string(size), std::to_string(scheme.group_size));
  if (!config.find_bool("sym").value_or(true)) fail_value(config, "sym", "false", "true");
  const int64_t activations = config.find_int("act_bits").value_or(16);
  if (activations < 16 && (!is_nvfp4 || activations != 4))
    fail_value(config, "act_bits", std::to_string(activations), is_nvfp4 ? "4, 16" : "16");
  if (activations == 4) {
    const std::string of = config.find_string("act_data_type").value_or("missing");
    if (!of.starts_with("nv_fp")) fail_value(config, "act_data_type", quote_name(of), "\"nv_fp4\"");
    note_float_activations(4, /*stored=*/false, out);
  }
  for (const char* key : {"desc_act", "dynamic", "format", "checkpoint_format"})
    expect_nothing(config, key);
  out.groups = {{.scheme = scheme, .targets = {}}};
  read_extra(
      config,
      [](const ConfigReader& rule, FolderScheme&) {
        const auto bits = rule.find_int("bits");
        fail_value(rule, "bits", bits ? std::to_string(*bits) : "missing", "16");
      },
      out);
  out.excluded = read_names(config, "modules_to_not_convert");
}

}  // namespace

void read_awq(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kAwq);
  expect_method(config);
  FolderScheme scheme = {.format = FolderFormat::kAwq};
  read_bits(config, config.find("w_bit") ? "w_bit" : "bits", kAwqBits, scheme);
  const char* group = config.find("q_group_size") ? "q_group_size" : "group_size";
  set_group(config, group, config.require_int(group), scheme);
  for (const char* key : {"version", "format", "checkpoint_format"}) expect_gemm(config, key);
  // Its program packs in another order.
  const auto backend = config.find_string("backend");
  if (backend == "llm-awq") fail_value(config, "backend", quote_name(*backend), "\"autoawq\"");
  // Zero points are stored in any case. "sym" says the same; "desc_act" was the search's order:
  // the tensors have none.
  (void)config.find_bool("sym");
  (void)config.find_bool("desc_act");
  scheme.symmetric = !config.find_bool("zero_point").value_or(true);
  out.groups = {{.scheme = scheme, .targets = {}}};
  read_dynamic(config, kAwqBits, out);
  out.excluded = read_names(config, "modules_to_not_convert");
}

void read_gptq(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kGptq);
  expect_method(config);
  FolderScheme scheme = {.format = FolderFormat::kGptq};
  read_bits(config, "bits", kGptqBits, scheme);
  set_group(config, "group_size", config.require_int("group_size"), scheme);
  scheme.zeros_less_one = gptq_version(config) == "gptq";
  scheme.symmetric = config.find_bool("sym").value_or(false);
  scheme.any_order = config.find_bool("desc_act").value_or(false);
  // `rotation` needs a transform of activations.
  for (const char* key : {"is_marlin_format", "rotation", "adapter"}) expect_nothing(config, key);
  out.groups = {{.scheme = scheme, .targets = {}}};
  read_dynamic(config, kGptqBits, out);
  out.excluded = read_names(config, "modules_to_not_convert");
}

void read_auto_round(const ConfigReader& config, FolderQuantization& out) {
  expect_known_keys(config, FolderKeys::kAutoRound);
  const std::string packing = config.find_string("packing_format").value_or("missing");
  const auto is = [&](std::string_view name) { return packing == name; };
  if (is("auto_round:llm_compressor")) return read_auto_round_floats(config, out);
  expect_method(config);
  const bool awq = is("auto_round:auto_awq"), first = is("auto_round:auto_gptq");
  // The other two are GPTQ with zero points as they are.
  if (!awq && !first && !is("auto_round") && !is("auto_round:gptqmodel"))
    fail_value(config, "packing_format", quote_name(packing),
               "\"auto_round\", \"auto_round:auto_gptq\", \"auto_round:gptqmodel\", "
               "\"auto_round:auto_awq\", \"auto_round:llm_compressor\"");
  const std::initializer_list<int64_t> bits = awq ? kAwqBits : kGptqBits;
  FolderScheme scheme = {.format = awq ? FolderFormat::kAwq : FolderFormat::kGptq,
                         .zeros_less_one = first};
  read_bits(config, "bits", bits, scheme);
  set_group(config, "group_size", config.require_int("group_size"), scheme);
  scheme.symmetric = config.find_bool("sym").value_or(false);
  for (const char* key : {"desc_act", "dynamic", "format", "checkpoint_format"})
    expect_nothing(config, key);
  out.groups = {{.scheme = scheme, .targets = {}}};
  read_extra(
      config, [&](const ConfigReader& rule, FolderScheme& own) { read_rule(rule, bits, own); },
      out);
  out.excluded = read_names(config, "modules_to_not_convert");
}

}  // namespace quire::formats
