#pragma once
#include <span>
#include <string>
#include <utility>

#include "base/json.h"
#include "server/session.h"

namespace quire::server::openai {

// Where a JSON list that is written in parts stands.
class JsonList {
 public:
  void open(std::string& out) {
    out += '[';
    empty_ = true;
  }
  // Before each element.
  void next(std::string& out) {
    if (!std::exchange(empty_, false)) out += ',';
  }

 private:
  bool empty_ = true;
};

// Log-probabilities as the two APIs write them. Every function appends elements to an open list.
class LogprobsFormat {
 public:
  // `as_ids`: tokens are shown as "token_id:42", which no decoding can blur.
  LogprobsFormat(const text::Tokenizer& tokenizer, bool as_ids)
      : tokenizer_(tokenizer), as_ids_(as_ids) {}

  // The four lists of a completion.
  void append_offsets(std::string& out, JsonList& list, std::span<const SessionToken> tokens) const;
  void append_logprobs(std::string& out, JsonList& list,
                       std::span<const SessionToken> tokens) const;
  void append_tokens(std::string& out, JsonList& list, std::span<const SessionToken> tokens) const;
  void append_tops(std::string& out, JsonList& list, std::span<const SessionToken> tokens) const;
  // {"token", "logprob", "bytes", "top_logprobs": []} of a chat; only tokens of the answer.
  void append_content(std::string& out, JsonList& list, std::span<const SessionToken> tokens) const;
  // vLLM's extra: {"42": {"logprob", "rank", "decoded_token"}}
  void append_prompt(std::string& out, JsonList& list,
                     std::span<const engine::TokenLogprob> entries) const;

 private:
  std::string token_text(int32_t id) const;
  json::object chat_entry(int32_t id, float logprob) const;

  const text::Tokenizer& tokenizer_;
  const bool as_ids_;
};

}  // namespace quire::server::openai
