#pragma once
#include <string>
#include <vector>

#include "formats/hf_config.h"
#include "models/layer_spec.h"

namespace quire::models {

// The spec of the config's architecture. Throws LoadError listing the supported ones if it is not
// among them. `max_positions`: how far sequences will reach (longrope chooses its factors by it).
ModelSpec make_model_spec(const formats::HfConfig& config, int64_t max_positions);

std::vector<std::string> supported_architectures();

}  // namespace quire::models
