#pragma once
#include "formats/hf_config.h"
#include "server/options.h"

namespace quire::cli {

// What generation_config.json recommends. Its do_sample is a switch of transformers; as in vLLM
// only the numbers count here.
server::SamplingDefaults sampling_defaults(const formats::GenerationConfig& config);

}  // namespace quire::cli
