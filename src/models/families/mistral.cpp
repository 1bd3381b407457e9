#include "models/families/families.h"

namespace quire::models {

// Mistral 7B (arXiv:2310.06825): Llama's layout with a sliding window in every layer, if the config
// has one.
ModelSpec mistral(const formats::HfConfig& config, int64_t max_positions) {
  // transformers' MistralConfig: a window of 4096 unless the file says otherwise; null is none.
  const bool stated = config.raw.as_object().contains("sliding_window");
  const int64_t window = stated ? config.sliding_window.value_or(0) : 4096;
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec, [&](size_t, const std::string&, AttentionSpec& attention, MlpSpec&) {
    if (window > 0) attention.window_left = window - 1;
  });
  return spec;
}

}  // namespace quire::models
