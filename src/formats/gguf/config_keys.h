#pragma once
#include <string>

#include "formats/config_reader.h"

namespace quire::formats {

// The keys of config.json that an architecture's metadata fills in, and the metadata's keys for
// them ("num_hidden_layers": "llama.block_count"), so that messages can name what a file has.
KeyNames gguf_keys_of_config(const std::string& architecture);

}  // namespace quire::formats
