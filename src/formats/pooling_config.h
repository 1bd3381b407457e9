#pragma once
#include <string>

namespace quire::formats {

// How a model for embeddings makes one vector of its tokens' states.
enum class PoolingMode { kLast, kMean };

// What sentence-transformers' 1_Pooling/config.json in the model folder says; of a folder without
// one the last token's state. Throws LoadError naming the file if it is a way that is not known.
PoolingMode read_pooling_mode(const std::string& dir);

}  // namespace quire::formats
