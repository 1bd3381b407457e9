#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf/gguf.h"
#include "formats/gguf/tensor_names.h"
#include "formats/hf_config.h"
#include "formats/model_files.h"
#include "formats/pooling_config.h"
#include "formats/raw_tensor.h"
#include "formats/safetensors.h"

namespace quire::formats {

// A model's configs and its tensors, all files open and their headers checked: of a Hugging Face
// model folder, or of a GGUF file, whose contents are said in a folder's words (configs, names of
// tensors, order of rows). A folder's tensors come from model.safetensors, or from the shards that
// model.safetensors.index.json lists.
class Checkpoint {
 public:
  // `path` is a folder or a GGUF file (of several the first). A folder without config.json whose
  // only model is in GGUF stands for that. Throws LoadError naming the file, the tensor or key, and
  // the remedy.
  static Checkpoint open(const std::string& path);

  // The folder, or the GGUF file.
  const std::string& dir() const { return dir_; }
  const HfConfig& config() const { return config_; }
  const GenerationConfig& generation_config() const { return generation_config_; }

  // Ids that end a generation: those of both configs, ascending.
  std::vector<int64_t> eos_token_ids() const;

  // Names of all tensors, ascending.
  std::vector<std::string> names() const;
  // Null if there is none. Valid as long as this object, wherever it is moved.
  const RawTensor* find(std::string_view name) const;
  // For people: what a tensor of this name, which may be missing, is called in the file.
  std::string name_in_file(const std::string& name) const;
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
  // Whether norms that count around zero (ModelSpec::has_zero_centred_norms) are stored plus one.
  bool norms_are_complete() const { return norms_are_complete_; }
  // How a GGUF file says that vectors for embeddings are made. Nothing if it does not, and of a
  // folder, whose read_pooling_mode() does.
  std::optional<PoolingMode> pooling() const { return pooling_; }
  // The files that tokenizer and chat template are made of.
  ModelFiles text_files() const;

 private:
  Checkpoint() = default;
  static Checkpoint open_gguf(const std::string& path);
  void add_shard(const std::string& path);
  void add_indexed_shards(const std::string& index_path);
  void forget_old_quantization();  // HfConfig::quantization_may_be_old
  void see_codes_as_bytes();

  std::string dir_;
  HfConfig config_;
  GenerationConfig generation_config_;
  std::vector<SafetensorsFile> files_;
  std::optional<GgufModel> gguf_;  // none for a folder
  std::optional<GgufTensorNames> gguf_names_;
  // Of the GGUF file, under a folder's names; of a folder, those that are no elements of the dtype
  // that it says.
  std::vector<RawTensor> translated_;
  bool norms_are_complete_ = false;
  std::optional<PoolingMode> pooling_;
  std::map<std::string, const RawTensor*, std::less<>> tensors_;
  uint64_t total_bytes_ = 0;
};

}  // namespace quire::formats
