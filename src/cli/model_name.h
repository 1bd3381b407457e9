#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "formats/hf_config.h"
#include "formats/model_files.h"
#include "text/chat_template.h"

namespace quire::cli {

struct ModelPlace {
  std::string folder;
  std::string name;  // ORG/NAME; empty if a folder was named
};

enum class ModelParts { kAll, kTokenizer };

// What a command line calls a model: a folder, or ORG/NAME[@REV] of a hub, which is fetched if the
// cache does not have it. A folder of that name comes first. Throws LoadError.
ModelPlace find_model(const std::string& text, ModelParts parts = ModelParts::kAll);

// Fetches ORG/NAME[@REV] and returns its folder, asking the hub in any case. Throws LoadError.
std::string pull_model(const std::string& text);

// What `quire show` looks at.
struct ModelPreview {
  std::string folder, name;   // as ModelPlace
  bool is_whole = true;       // the weights are there
  uint64_t weight_bytes = 0;  // else so many would be fetched
};

// A folder, or a model of a hub, of which all but the weights is fetched if the cache does not have
// it. Throws LoadError.
ModelPreview preview_model(const std::string& text);

// Throws LoadError if the tokenizer has tokens that the model does not have.
void check_vocabulary(const std::string& model, int64_t tokens, int64_t vocabulary);

// Throws LoadError if a model is one that cannot be served: by its architecture, its quantisation
// or its tokenizer. Returns its chat template, or null.
std::shared_ptr<const text::ChatTemplate> check_readable(const formats::HfConfig& config,
                                                         const formats::ModelFiles& files);
// The same of a folder, which may have no weights yet.
std::shared_ptr<const text::ChatTemplate> check_readable_folder(const std::string& folder);

}  // namespace quire::cli
