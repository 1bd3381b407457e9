#include "cli/sampling_defaults.h"

#include <algorithm>

namespace quire::cli {

server::SamplingDefaults sampling_defaults(const formats::GenerationConfig& config) {
  server::SamplingDefaults defaults;
  if (config.temperature) defaults.temperature = static_cast<float>(*config.temperature);
  if (config.top_p) defaults.top_p = static_cast<float>(*config.top_p);
  if (config.min_p) defaults.min_p = static_cast<float>(*config.min_p);
  if (config.repetition_penalty)
    defaults.repetition_penalty = static_cast<float>(*config.repetition_penalty);
  if (config.top_k) defaults.top_k = static_cast<int32_t>(std::max<int64_t>(0, *config.top_k));
  defaults.max_new_tokens = config.max_new_tokens;
  return defaults;
}

}  // namespace quire::cli
