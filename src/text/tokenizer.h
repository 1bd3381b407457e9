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
#include "base/work_budget.h"
#include "formats/model_files.h"

namespace quire::text {

// Who is asked before a call takes more memory than 2 MiB while it works. The Rust library calls it
// in place (rust/quire-text/src/working_memory.rs): the fields are its contract.
struct WorkingMemory {
  bool (*try_add)(void* owner, size_t bytes);  // false: not now. Must not throw
  void* owner;
};

struct EncodeOptions {
  bool add_special_tokens = true;
  // Only the first, or only the last ids of those that the whole text has; not both.
  std::optional<size_t> keep_first = {}, keep_last = {};
  // Longer texts are tokenised in pieces of about this size where that gives the same ids. Only
  // between pieces the work can be stopped. A piece of this size takes no more than 2 MiB.
  size_t piece_bytes = 4u << 10;
  WorkBudget* budget = nullptr;           // null: no limit
  const WorkingMemory* memory = nullptr;  // null: whatever it takes
};

struct DecodeOptions {
  bool skip_special_tokens = false;
  WorkBudget* budget = nullptr;  // null: no limit
};

// A model's tokenizer, with the ids and texts that transformers gives for the same directory.
// Immutable after loading: every method may be called from any number of threads.
class Tokenizer {
 public:
  // Reads tokenizer.json, or Mistral's tekken.json where there is none, and tokenizer_config.json
  // and special_tokens_map.json where they exist. Of a tekken.json the ids are those that
  // mistral-common gives.
  // As in transformers 5, whether encode() adds bos and eos is what tokenizer.json's post-processor
  // says; add_bos_token in the config is for tokenizers without one. Truncation and padding set in
  // the file are ignored. Throws LoadError naming the file and the reason.
  static std::shared_ptr<const Tokenizer> load(const std::filesystem::path& model_dir);
  // The same from the files that a model's checkpoint names.
  static std::shared_ptr<const Tokenizer> load(const formats::ModelFiles& files);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Error: `text` is not valid UTF-8; the budget is spent or cancelled; there is no memory; or
  // there are more than 512 KiB that have to be tokenised in one go, because of what the text is
  // (one word) or of a tokenizer for which no safe place to cut is known.
  Result<std::vector<int32_t>, std::string> encode(std::string_view text,
                                                   const EncodeOptions& options) const;
  Result<std::vector<int32_t>, std::string> encode(std::string_view text,
                                                   bool add_special_tokens) const {
    return encode(text, EncodeOptions{.add_special_tokens = add_special_tokens});
  }
  // Error: an id outside [0, vocab_size). Ids without a token in that range decode to nothing.
  Result<std::string, std::string> decode(std::span<const int32_t> ids,
                                          bool skip_special_tokens) const;
  // The same, stopped where the budget is spent or cancelled, which is an error. So are more than
  // 65,536 ids where the decoder is neither ByteLevel nor of the SentencePiece family: it takes all
  // in one go.
  Result<std::string, std::string> decode(std::span<const int32_t> ids,
                                          const DecodeOptions& options) const;
  // At most how many bytes decode() makes of these ids; of a decoder that is neither of those,
  // about how many. Ids without a token count as nothing.
  size_t decoded_bytes(std::span<const int32_t> ids) const;

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
