#pragma once
#include "base/json.h"

namespace quire::formats {

// Adds what published files of a model type leave out because it is transformers' default, for keys
// that every config must have: google/gemma-3-4b-it states neither heads nor vocabulary. `config`
// is the object of the language model.
void add_config_defaults(json::object& config);

}  // namespace quire::formats
