#pragma once
#include <cstdint>
#include <string>

#include "models/model_size.h"

namespace quire::cli {

// What `quire show` says of a model, a folder's and a GGUF file's.

// "751 M", "30.5 B".
std::string count_text(int64_t count);

// What serving takes with the flags' defaults, on the CPU: "weights 1.1 GiB, a step 0.6 GiB, ...".
std::string memory_text(const models::ModelSize& size);

// Throws LoadError if a server with the flags' defaults would not start on this machine's CPU.
// `shown`: how the model is called.
void check_fits_here(const std::string& shown, const models::ModelSize& size);

}  // namespace quire::cli
