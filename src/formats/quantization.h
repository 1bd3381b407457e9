#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "formats/hf_config.h"

namespace quire::formats {

// MLX's "mode": what the codes of a group of `group_size` neighbouring k of one output row mean.
enum class QuantMode {
  kAffine,  // w = scale * q + bias with q in [0, 2^bits): 2, 3, 4, 5, 6 or 8 bits by 32, 64 or 128
  kMxfp4,   // small floats times a scale of one byte: 4 bits by 32
  kMxfp8,   // 8 bits by 32
  kNvfp4,   // 4 bits by 16
};
constexpr QuantMode kQuantModes[] = {QuantMode::kAffine, QuantMode::kMxfp4, QuantMode::kMxfp8,
                                     QuantMode::kNvfp4};
const char* mode_name(QuantMode mode);
std::optional<QuantMode> parse_mode(const std::string& name);

struct QuantisedFormat {
  int bits = 0;
  int64_t group_size = 0;
  QuantMode mode = QuantMode::kAffine;
  bool operator==(const QuantisedFormat&) const = default;
};

// What MLX takes where bits and group size are not said; for small floats the only choice.
QuantisedFormat usual_format(QuantMode mode);

// What config.json says about quantised weights, as mlx-lm writes it:
//   "quantization": {"group_size": 64, "bits": 4, "mode": "affine",
//                    "model.layers.0.self_attn.q_proj": {"group_size": 32, "bits": 8},
//                    "lm_head": false}
// An object without a mode means affine, whatever the mode of the rest.
struct QuantizationConfig {
  QuantisedFormat defaults;
  std::map<std::string, std::optional<QuantisedFormat>> layers;  // overrides; empty: not quantised

  // The format of a layer ("model.layers.0.self_attn.q_proj") if it is quantised at all: a layer
  // without an override is if the checkpoint has scales for it.
  std::optional<QuantisedFormat> of_layer(const std::string& layer) const;
  // Whether an override says that the layer is quantised.
  bool demands(const std::string& layer) const;
};

// Nothing if config.json does not mention quantisation, or in words that folder_quantization.h
// reads. Throws LoadError naming the file, the key and the remedy if it does in a way that Quire
// cannot read: other methods, modes, bits or group sizes.
std::optional<QuantizationConfig> read_quantization_config(const HfConfig& config);

}  // namespace quire::formats
