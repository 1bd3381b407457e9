#pragma once
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/answer_format.h"
#include "server/openai/logprobs.h"
#include "server/openai/request.h"

namespace quire::server::openai {

// "stop", "length", "abort" or "error", as vLLM says it in answers and metrics. Answers that end
// with tool calls say "tool_calls" for a stop.
const char* finish_reason_name(engine::FinishReason reason);

// What an answer says about itself.
struct AnswerInfo {
  bool is_chat = false;
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;  // empty: none
  std::string role = "assistant";
  bool logprobs = false;         // of the answer's tokens
  bool prompt_logprobs = false;  // the extra field of vLLM
  bool token_ids = false;
  bool usage_at_end = false, usage_in_chunks = false;  // of a stream
};

// Writes the JSON of an answer, whole or in chunks. A chunk of a choice and the whole choice differ
// only in how the text is wrapped.
class AnswerWriter final : public AnswerFormat {
 public:
  AnswerWriter(AnswerInfo info, std::shared_ptr<const text::Tokenizer> tokenizer,
               bool tokens_as_ids);

  bool writes_tokens() const override { return info_.logprobs || info_.token_ids; }
  AnswerBody body(const std::vector<std::unique_ptr<Session>>& sessions,
                  const std::vector<TextDelta>& choices, const Usage& usage) const override;
  std::string events(int64_t index, const Session& session, const TextDelta& delta,
                     const Usage& usage) override;
  std::string last_events(const Usage& usage) override;
  std::string error_events(const ApiError& error) override;

 private:
  // False for deltas that would make a chunk without content.
  bool is_worth_sending(const TextDelta& delta, bool first) const;
  // `first`: the choice's first chunk. `usage` may be null.
  std::string chunk(int64_t index, const Session& session, const TextDelta& delta, bool first,
                    const Usage* usage) const;
  std::string usage_chunk(const Usage& usage) const;
  void open(std::string& out, bool chunk) const;
  void add_choice(AnswerBody& body, int64_t index, const Session& session, const TextDelta& delta,
                  bool chunk, bool first) const;
  void add_logprobs(AnswerBody& body, const TextDelta& delta) const;
  void append_chat_text(std::string& out, const TextDelta& delta, bool chunk, bool first) const;
  void append_finish(std::string& out, const TextDelta& delta) const;
  void add_prompt_extras(AnswerBody& body, const Session& session) const;

  const AnswerInfo info_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const LogprobsFormat logprobs_;
  std::set<int64_t> begun_;  // choices that have sent a chunk
};

}  // namespace quire::server::openai
