#pragma once
#include <string>

namespace quire::cli {

// Prints what a GGUF file holds: the model and what Quire takes it for, the types of its tensors,
// its tokenizer and its chat templates. False if the model is not supported, which it says. Throws
// LoadError if it is no GGUF file in order.
bool show_gguf(const std::string& path);

}  // namespace quire::cli
