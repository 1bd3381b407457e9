#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "formats/hf_config.h"

namespace quire::formats {

// MLX's affine format: groups of `group_size` neighbouring k of one output row share a scale and a
// bias; w = scale * q + bias with q in [0, 2^bits).
struct AffineConfig {
  int bits = 0;            // 2, 3, 4, 5, 6 or 8
  int64_t group_size = 0;  // 32, 64 or 128
  bool operator==(const AffineConfig&) const = default;
};

// What config.json says about quantised weights, as mlx-lm writes it:
//   "quantization": {"group_size": 64, "bits": 4, "mode": "affine",
//                    "model.layers.0.self_attn.q_proj": {"group_size": 32, "bits": 8},
//                    "lm_head": false}
struct QuantizationConfig {
  AffineConfig defaults;
  std::map<std::string, std::optional<AffineConfig>> layers;  // overrides; empty: not quantised

  // The format of a layer ("model.layers.0.self_attn.q_proj") if it is quantised at all: a layer
  // without an override is if the checkpoint has scales for it.
  std::optional<AffineConfig> of_layer(const std::string& layer) const;
  // Whether an override says that the layer is quantised.
  bool demands(const std::string& layer) const;
};

// Nothing if config.json does not mention quantisation. Throws LoadError naming the file, the key
// and the remedy if it does in a way that Quire cannot read: GPTQ, AWQ, bitsandbytes,
// compressed-tensors, other modes, bits or group sizes.
std::optional<QuantizationConfig> read_quantization_config(const HfConfig& config);

}  // namespace quire::formats
