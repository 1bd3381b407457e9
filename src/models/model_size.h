#pragma once
#include <cstdint>
#include <vector>

#include "formats/checkpoint.h"
#include "models/layer_spec.h"
#include "models/model.h"

namespace quire::models {

// What a model keeps for each layer and token, by its spec alone.
std::vector<CacheSpec> cache_specs(const ModelSpec& spec);
// Elements per token of the widest activation.
int64_t widest_activation(const ModelSpec& spec);

// The spec, and the dtype of activations, that load_model takes with these options. Throw LoadError
// for an unsupported architecture or dtype.
ModelSpec model_spec_of(const formats::Checkpoint& checkpoint, const LoadOptions& options);
mx::Dtype dtype_of(const formats::Checkpoint& checkpoint, const ModelSpec& spec,
                   const LoadOptions& options);

// How large a model will be once it is loaded, from its config and the headers of its files. Bytes
// are about right: padding is not counted.
struct ModelSize {
  int64_t weights = 0;            // bytes
  int64_t parameters = 0;         // of the language model; a quantised value is one
  int64_t weights_in_4_bits = 0;  // bytes, if `quire quantize` made them; as `weights` if it did
  int64_t max_positions = 0;
  int64_t rope_bytes = 0;  // of the table, for each position
  int64_t vocab = 0;
  int64_t widest_activation = 0;  // elements per token
  mx::Dtype dtype = mx::float32;  // of activations
  std::vector<CacheSpec> caches;
};

// Reads no weights. `on_gpu`: as a GPU stores them. Throws LoadError as model_spec_of.
ModelSize measure_model(const formats::Checkpoint& checkpoint, const LoadOptions& options,
                        bool on_gpu = false);

}  // namespace quire::models
