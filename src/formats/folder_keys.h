#pragma once
#include "formats/config_reader.h"

namespace quire::formats {

// Which part of quantization_config an object is.
enum class FolderKeys {
  kAwq,
  kGptq,
  kAutoRound,
  kIntegerRule,  // of some layers with whole numbers
  kCompressed,
  kCompressedGroup,
  kCompressedArguments,  // of weights, and of activations
  kFp8,
  kModelopt,
  kModeloptInner,  // "quantization" of hf_quant_config.json
  kModeloptLayer,  // of "quantized_layers"
  kBitsandbytes,
  kMxfp4,  // of gpt-oss
  kMlx,    // keys that are no layers
};

// Null, false or empty: a key that asks for nothing.
bool is_nothing(const json::value& value);

// Throws LoadError naming `key` if it is neither read nor known to leave the values of the weights
// and what is computed with them as they are, and asks for anything.
void expect_known_key(const ConfigReader& config, FolderKeys part, std::string_view key,
                      const json::value& value);

// The same of all keys.
void expect_known_keys(const ConfigReader& config, FolderKeys part);

}  // namespace quire::formats
