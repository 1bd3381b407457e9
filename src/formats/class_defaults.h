#pragma once
#include "base/json.h"

namespace quire::formats {

// Adds what a config leaves out and transformers' config class of its model_type sets to something
// else than HfConfig assumes. Keys that only one family reads have their defaults there. `config`
// is the object of the language model; what `top`, the wrapper's (or the same), has is stated, too.
void add_class_defaults(json::object& config, const json::object& top);

}  // namespace quire::formats
