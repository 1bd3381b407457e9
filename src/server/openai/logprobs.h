#pragma once
#include <span>
#include <string>

#include "base/json.h"
#include "server/session.h"

namespace quire::server::openai {

// Log-probabilities as the two APIs write them.
class LogprobsFormat {
 public:
  // `as_ids`: tokens are shown as "token_id:42", which no decoding can blur.
  LogprobsFormat(const text::Tokenizer& tokenizer, bool as_ids)
      : tokenizer_(tokenizer), as_ids_(as_ids) {}

  // {"text_offset": [], "token_logprobs": [], "tokens": [], "top_logprobs": []}
  json::value completion(std::span<const SessionToken> tokens) const;
  // {"content": [{"token", "logprob", "bytes", "top_logprobs": []}]}; only tokens of the answer.
  json::value chat(std::span<const SessionToken> tokens) const;
  // vLLM's extra: [null, {"42": {"logprob", "rank", "decoded_token"}}, ...]
  json::value prompt(std::span<const engine::TokenLogprob> entries) const;

 private:
  std::string token_text(int32_t id) const;
  json::object chat_entry(int32_t id, float logprob) const;

  const text::Tokenizer& tokenizer_;
  const bool as_ids_;
};

}  // namespace quire::server::openai
