#include "formats/folder_keys.h"

#include <algorithm>
#include <span>

namespace quire::formats {
namespace {

using Keys = std::span<const std::string_view>;

// What the readers (folder_readers.h) read or refuse by value, then what changes nothing here: how
// the weights were found, which kernels another program should take, names and versions of
// programs.

// How weights were found, and by which program. (transformers writes GPTQ's words for AWQ, too.)
constexpr std::string_view kSearchKeys[] = {"provider",
                                            "autoround_version",
                                            "meta",
                                            "dataset",
                                            "batch_size",
                                            "seqlen",
                                            "nsamples",
                                            "iters",
                                            "lr",
                                            "minmax_lr",
                                            "gradient_accumulate_steps",
                                            "enable_minmax_tuning",
                                            "enable_quanted_input",
                                            "low_gpu_mem_usage",
                                            "amp",
                                            "block_name_to_quantize",
                                            "to_quant_block_names",
                                            "damp_percent",
                                            "damp_auto_increment",
                                            "static_groups",
                                            "true_sequential",
                                            "tokenizer",
                                            "model_seqlen",
                                            "pad_token_id",
                                            "module_name_preceding_first_block",
                                            "modules_in_block_to_quantize",
                                            "cache_block_outputs",
                                            "mse",
                                            "act_group_aware",
                                            "quantizer"};

// Of all methods with whole numbers, beside those.
constexpr std::string_view kIntegerKeys[] = {
    "quant_method", "method", "bits", "group_size", "sym", "desc_act", "format",
    "checkpoint_format", "pack_dtype", "data_type", "modules_to_not_convert", "lm_head", "dynamic",
    // Of activations; with "act_bits" of 16 the others mean nothing.
    "act_bits", "act_data_type", "act_dynamic", "act_group_size", "act_sym",
    // Types of scales are those of the tensors.
    "scale_dtype",
    // Kernels.
    "backend", "exllama_config", "max_input_length"};

constexpr std::string_view kAwqKeys[] = {"w_bit", "q_group_size", "version", "zero_point",
                                         // Kernels.
                                         "do_fuse", "fuse_max_seq_len", "modules_to_fuse"};

constexpr std::string_view kGptqKeys[] = {"is_marlin_format", "rotation", "adapter",
                                          // Kernels.
                                          "use_cuda_fp16", "use_exllama", "disable_exllama",
                                          // Names.
                                          "model_name_or_path", "model_file_base_name"};

constexpr std::string_view kAutoRoundKeys[] = {"packing_format", "extra_config",
                                               // That no data were looked at.
                                               "model_free"};

constexpr std::string_view kIntegerRuleKeys[] = {
    "bits", "group_size", "sym", "desc_act", "data_type", "scale_dtype",
    // Of activations; with "act_bits" of 16 the others mean nothing.
    "act_bits", "act_data_type", "act_dynamic", "act_group_size", "act_sym",
    // How weights were found.
    "damp_percent", "damp_auto_increment", "static_groups", "mse", "act_group_aware"};

constexpr std::string_view kCompressedKeys[] = {"quant_method",
                                                "format",
                                                "config_groups",
                                                "ignore",
                                                "kv_cache_scheme",
                                                "transform_config",
                                                "sparsity_config",
                                                "quantization_status",
                                                "global_compression_ratio",
                                                "run_compressed",
                                                "version",
                                                "provider"};
constexpr std::string_view kCompressedGroupKeys[] = {"targets", "weights", "input_activations",
                                                     "output_activations", "format"};
constexpr std::string_view kCompressedArgumentKeys[] = {
    "num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "dynamic",
    "actorder",
    // How scales were found; their types are those of the tensors.
    "observer", "observer_kwargs", "scale_dtype", "zp_dtype"};

constexpr std::string_view kFp8Keys[] = {
    "quant_method", "fmt", "activation_scheme", "weight_block_size", "modules_to_not_convert",
    "ignored_layers", "kv_cache_scheme", "expert_dtype",
    // AutoRound's, which say the same once more.
    "bits", "group_size", "sym", "data_type", "act_bits", "act_data_type", "act_dynamic",
    "act_group_size", "act_sym", "extra_config",
    // How scales of activations are rounded, and what transformers makes of the weights.
    "scale_fmt", "dequantize"};

constexpr std::string_view kModeloptKeys[] = {
    "quant_method",    "quantization",     "quant_algo",      "kv_cache_quant_algo",
    "kv_cache_scheme", "group_size",       "weights",         "input_activations",
    "config_groups",   "quantized_layers", "exclude_modules", "ignore",
    "producer"};
constexpr std::string_view kModeloptInnerKeys[] = {
    "quant_algo",    "kv_cache_quant_algo", "kv_cache_scheme", "group_size",
    "config_groups", "quantized_layers",    "exclude_modules", "ignore"};
constexpr std::string_view kModeloptLayerKeys[] = {"quant_algo", "group_size"};

constexpr std::string_view kBitsandbytesKeys[] = {
    "quant_method", "load_in_4bit", "load_in_8bit", "bnb_4bit_quant_type", "bnb_4bit_quant_storage",
    "llm_int8_skip_modules",
    // Tensors say the first; the others are for 8 bits, or another program's arithmetic.
    "bnb_4bit_use_double_quant", "bnb_4bit_compute_dtype", "_load_in_4bit", "_load_in_8bit",
    "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight", "llm_int8_threshold"};

constexpr std::string_view kMxfp4Keys[] = {"quant_method", "modules_to_not_convert",
                                           // What transformers makes of the weights.
                                           "dequantize"};

constexpr std::string_view kMlxKeys[] = {"bits", "group_size", "mode"};

Keys keys_of(FolderKeys part) {
  switch (part) {
    case FolderKeys::kAwq:
      return kAwqKeys;
    case FolderKeys::kGptq:
      return kGptqKeys;
    case FolderKeys::kAutoRound:
      return kAutoRoundKeys;
    case FolderKeys::kIntegerRule:
      return kIntegerRuleKeys;
    case FolderKeys::kCompressed:
      return kCompressedKeys;
    case FolderKeys::kCompressedGroup:
      return kCompressedGroupKeys;
    case FolderKeys::kCompressedArguments:
      return kCompressedArgumentKeys;
    case FolderKeys::kFp8:
      return kFp8Keys;
    case FolderKeys::kModelopt:
      return kModeloptKeys;
    case FolderKeys::kModeloptInner:
      return kModeloptInnerKeys;
    case FolderKeys::kModeloptLayer:
      return kModeloptLayerKeys;
    case FolderKeys::kBitsandbytes:
      return kBitsandbytesKeys;
    case FolderKeys::kMxfp4:
      return kMxfp4Keys;
    case FolderKeys::kMlx:
      return kMlxKeys;
  }
  return {};
}

bool is_known(FolderKeys part, std::string_view key) {
  const Keys own = keys_of(part);
  if (std::ranges::find(own, key) != own.end()) return true;
  const bool integers =
      part == FolderKeys::kAwq || part == FolderKeys::kGptq || part == FolderKeys::kAutoRound;
  const auto is_among = [&](Keys keys) { return std::ranges::find(keys, key) != keys.end(); };
  return (integers && is_among(kIntegerKeys)) ||
         ((integers || part == FolderKeys::kFp8) && is_among(kSearchKeys));
}

}  // namespace

bool is_nothing(const json::value& value) {
  return value.is_null() || (value.is_object() && value.get_object().empty()) ||
         (value.is_array() && value.get_array().empty()) || (value.is_bool() && !value.get_bool());
}

void expect_known_key(const ConfigReader& config, FolderKeys part, std::string_view key,
                      const json::value& value) {
  if (is_nothing(value) || is_known(part, key)) return;
  config.fail(key,
              "is not known and may change what the weights mean; take it out of the file if it "
              "does not");
}

void expect_known_keys(const ConfigReader& config, FolderKeys part) {
  for (const auto& entry : config.object())
    expect_known_key(config, part, {entry.key().data(), entry.key().size()}, entry.value());
}

}  // namespace quire::formats
