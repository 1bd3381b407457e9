#pragma once
#include <string>

namespace quire::formats {

// The files that a model's tokenizer and chat template are made of: those of a folder, or such as
// were made of a GGUF file's metadata.
struct ModelFiles {
  std::string origin = {};  // the folder, or the GGUF file, for messages
  bool are_made = false;    // then the texts below stand for the files of these names
  std::string tokenizer_json = {};
  std::string tokenizer_config_json = {};
};

}  // namespace quire::formats
