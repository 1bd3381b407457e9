#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace quire::text {

// Turns one sequence's tokens into text as they arrive. The deltas never split a character, and
// all of them with flush() make exactly decode() of all the ids. Linear in the length; not
// thread-safe.
//
// Byte-fallback vocabularies: a run of <0xNN> tokens is held back until it ends, because the
// decoder gives one U+FFFD for every byte of a run that is not valid as a whole.
// Decoders other than ByteLevel and the SentencePiece family (WordPiece, CTC, ...) are streamed by
// decoding a short window again; there equality is not guaranteed for ill-formed texts.
class Detokenizer {
 public:
  // `kept`: special tokens that stay in the text all the same.
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens = true,
                       std::vector<int32_t> kept = {});

  // The text that is certain now; often empty in the middle of a character. Ids without a token
  // (the padding of a model's vocabulary) add nothing.
  std::string push(int32_t id);
  // The rest, when no token will follow; unfinished characters become U+FFFD.
  std::string flush();

 private:
  void push_text(int32_t id, std::string& out);
  void push_window(int32_t id, std::string& out);
  void end_byte_run(std::string& out);
  void emit(std::string_view text, std::string& out);

  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> kept_;
  Utf8Stream utf8_;       // JoinRule::kBytes
  std::string byte_run_;  // JoinRule::kByteRuns
  bool first_token_ = true;
  uint32_t strip_left_;
  std::vector<int32_t> window_;  // JoinRule::kOpaque: recent ids, of which the first
  size_t emitted_ids_ = 0;       // emitted_ids_ are emitted already
};

}  // namespace quire::text
