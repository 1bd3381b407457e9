#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/hf_config.h"
#include "formats/raw_tensor.h"
#include "formats/safetensors.h"

namespace quire::formats {

// A Hugging Face model folder: its configs and its tensors, all files open and their headers
// checked. Tensors come from model.safetensors, or from the shards that
// model.safetensors.index.json lists.
class Checkpoint {
 public:
  // Throws LoadError naming the file, the tensor or key, and the remedy.
  static Checkpoint open(const std::string& dir);

  const std::string& dir() const { return dir_; }
  const HfConfig& config() const { return config_; }
  const GenerationConfig& generation_config() const { return generation_config_; }

  // Ids that end a generation: those of both configs, ascending.
  std::vector<int64_t> eos_token_ids() const;

  // Names of all tensors, ascending.
  std::vector<std::string> names() const;
  // Null if there is none. Valid as long as this object, wherever it is moved.
  const RawTensor* find(std::string_view name) const;
  uint64_t total_bytes() const { return total_bytes_; }
  // Throws LoadError if a weight file has changed since it was opened: what was read of it may be
  // of two models.
  void check_unchanged() const;
  // From now on what is read of the tensors is counted, for contents_digest().
  void record_contents();
  // The digest of all tensors of which something was read: names, shapes, dtypes and every byte. It
  // does not depend on folder, files or the order of reading. Reads the few blocks that were read
  // in parts. Throws LoadError.
  std::string contents_digest() const;

 private:
  Checkpoint() = default;
  void add_shard(const std::string& path);
  void add_indexed_shards(const std::string& index_path);

  std::string dir_;
  HfConfig config_;
  GenerationConfig generation_config_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, const RawTensor*, std::less<>> tensors_;
  uint64_t total_bytes_ = 0;
};

}  // namespace quire::formats
