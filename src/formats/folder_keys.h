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
};

// Null, false or empty: a key that asks for nothing.
bool is_nothing(const json::value& value);

// Throws LoadError naming the first key that is neither read nor known to leave the values of the
// weights and what is computed with them as they are, if it asks for anything.
void expect_known_keys(const ConfigReader& config, FolderKeys part);

}  // namespace quire::formats
