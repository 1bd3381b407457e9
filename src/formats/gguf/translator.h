#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/gguf/metadata.h"
#include "formats/gguf/tensor_names.h"
#include "formats/raw_tensor.h"

namespace quire::formats {

// A GGUF model in Hugging Face's words: what config.json would say, and the tensors under the names
// that checkpoints have. An architecture (architectures.h) fills it in; it starts from
// add_decoder(), which is a Llama, and changes what differs.
class GgufTranslator {
 public:
  // Views the metadata. `tensors` have GGUF's names.
  GgufTranslator(const GgufMetadata& metadata, const std::vector<RawTensor>& tensors);

  json::object config;
  // Norms that count around zero are stored plus one.
  bool norms_are_complete = false;

  // The metadata key "NAME" of the architecture: "llama.NAME".
  std::string key(std::string_view name) const { return architecture_ + "." + std::string(name); }
  std::optional<int64_t> find_int(std::string_view name, IntRange range = {}) const;
  std::optional<double> find_double(std::string_view name, RealRange range = {}) const;
  // A factor, or 0 where that stands for none.
  std::optional<double> find_factor_or_zero(std::string_view name) const;
  std::optional<bool> find_bool(std::string_view name) const;
  int64_t require_int(std::string_view name, IntRange range = {}) const;
  const GgufMetadata& metadata() const { return metadata_; }
  [[noreturn]] void fail(std::string_view name, const std::string& why) const;

  bool has_tensor(const std::string& name) const { return tensors_.contains(name); }
  const RawTensor* find_tensor(const std::string& name) const;
  // A tensor with a number for each place, which then counts as used; nothing if there is none.
  // Throws LoadError if it is not of F32.
  std::optional<std::vector<double>> take_floats(const std::string& name);

  // The key may differ between layers: add_decoder() then takes that of the first one.
  void allow_by_layer(std::string_view name) { by_layer_.emplace(name); }
  // A key that is one number, or one for each layer. Throws LoadError if it is missing.
  std::vector<int64_t> ints_by_layer(std::string_view name, IntRange range) const;

  // What every decoder has: sizes, norms, rope, whether the head is tied, whether there are biases.
  // `architecture` is Hugging Face's.
  void add_decoder(const char* architecture);
  // The same with latent attention: heads have a part that rotates and one that does not.
  void add_latent_decoder(const char* architecture);
  // The share of a head that rotates, so that its product with the width is `rotary` at least.
  static double share_of(int64_t rotary, int64_t head_dim);
  // Sizes that add_decoder found.
  int64_t head_dim() const { return head_dim_; }
  int64_t layers() const { return layers_; }
  int64_t heads() const { return heads_; }
  int64_t kv_heads() const { return kv_heads_; }
  // A list with one of the two types for each layer: is_sliding(layer) by the file's own pattern if
  // it has one, else every layer but each `full_every`-th has a window.
  void add_layer_types(int64_t full_every);
  // The rope of layers without a window goes under their type, and beside it one that is not
  // scaled, with the base of rope.freq_base_swa or this one.
  void add_plain_rope_of_windows(double base);

  // As GgufTensorNames.
  void rename(const std::string& gguf, std::string hugging_face) {
    names_.rename(gguf, std::move(hugging_face));
  }
  void rename_whole(const std::string& gguf, std::string hugging_face) {
    names_.rename_whole(gguf, std::move(hugging_face));
  }
  const GgufTensorNames& names() const { return names_; }
  // Cuts a layer's q, k and v apart if they are in one tensor, "attn_qkv"; finish() does that for
  // all layers unless this part of a name was renamed. Throws LoadError if there are other rows.
  void cut_qkv(int64_t layer, int64_t q_rows, int64_t kv_rows);
  // Rows of q and k are stored so that neighbours rotate: each head's halves take turns.
  void use_alternating_heads() { has_alternating_heads_ = true; }

  // All tensors under their new names. Throws LoadError for metadata of the architecture that
  // nothing has asked for: it may change what the model computes.
  std::vector<RawTensor> finish();

 private:
  // One number for all layers, or that of the first one where that is allowed.
  std::optional<int64_t> find_first_int(std::string_view name, IntRange range) const;
  void add_sizes();
  void check_further_layers(int64_t end) const;
  void add_heads();
  void add_latent_heads();
  bool has_attention_bias() const;
  void add_rest();
  void add_rope();
  void add_scaling(json::object& rope);
  bool add_factors(json::object& rope);
  // Whether a layer of this number is behind the model's own.
  bool is_further_layer(std::string_view layer) const;
  std::string new_name(const std::string& name) const;
  void cut_qkv(const RawTensor& tensor, int64_t q_rows, int64_t kv_rows);
  // A part of the tensor `of`, which takes its place.
  void add_piece(const RawTensor& of, RawTensor piece);
  void order_rows(RawTensor& tensor, const GgufBlockName& name) const;

  const GgufMetadata& metadata_;
  std::string architecture_;
  std::map<std::string, RawTensor> tensors_;
  GgufTensorNames names_;
  std::set<std::string, std::less<>> by_layer_;
  bool has_alternating_heads_ = false;
  int64_t head_dim_ = 0, layers_ = 0, heads_ = 0, kv_heads_ = 0;
};

}  // namespace quire::formats
