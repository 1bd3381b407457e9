#pragma once
#include <string>
#include <vector>

#include "hub/model_id.h"

namespace quire::hub {

// Which of a repository's files Quire reads.
struct NeededFiles {
  std::vector<std::string> small;    // configs, tokenizer, templates, the index of shards
  std::vector<std::string> weights;  // model.safetensors, or nothing until the index is here
  bool has_index = false;
};

inline constexpr const char* kSingleFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

// Chooses among all names of a repository. Throws LoadError if it has no weights that Quire reads,
// with what it has instead and the way out; or no config.json or no tokenizer.
NeededFiles choose_files(const ModelId& id, const std::vector<std::string>& names);
// Without weights: what a tokenizer is made of.
std::vector<std::string> tokenizer_files(const ModelId& id, const std::vector<std::string>& names);

// The shards that an index names, ascending. Throws LoadError if it is no index, if a shard is no
// plain file name, or one that the repository does not have.
std::vector<std::string> shards_of(const std::string& index_path,
                                   const std::vector<std::string>& names);

// What a snapshot's folder lacks of a model: the first file, or "".
std::string missing_file(const std::string& folder);

}  // namespace quire::hub
