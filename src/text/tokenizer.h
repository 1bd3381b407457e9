#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire::text {

// A model's tokenizer, with the ids and texts that transformers gives for the same directory.
// Immutable after loading: every method may be called from any number of threads.
class Tokenizer {
 public:
  // Reads tokenizer.json, and tokenizer_config.json and special_tokens_map.json where they exist.
  // As in transformers 5, whether encode() adds bos and eos is what tokenizer.json's post-processor
  // says; add_bos_token in the config is for tokenizers without one. Truncation and padding set in
  // the file are ignored. Throws LoadError naming the file and the reason.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& model_dir);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Error: `text` is not valid UTF-8.
  Result<std::vector<int32_t>, std::string> encode(std::string_view text,
                                                   bool add_special_tokens) const;
  // Error: an id outside [0, vocab_size). Ids without a token in that range decode to nothing.
  Result<std::string, std::string> decode(std::span<const int32_t> ids,
                                          bool skip_special_tokens) const;

  // One more than the highest id, added tokens included. A model's vocabulary may be larger.
  int32_t vocab_size() const;
  std::optional<int32_t> token_to_id(std::string_view token) const;
  // The token as the vocabulary spells it ("Ġthe", "▁the", "<0x0A>"); empty for an id without one.
  std::string_view id_to_token(int32_t id) const;
  // The bytes that the token adds to a text (" the"); empty for an id without a token.
  std::string_view token_bytes(int32_t id) const;
  // Special tokens are those that decode() leaves out on request.
  bool is_special(int32_t id) const;

  // The text of bos_token, eos_token, pad_token, ... as the config files name it.
  std::optional<std::string> special_token(std::string_view name) const;
  std::optional<int32_t> special_token_id(std::string_view name) const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace quire::text
