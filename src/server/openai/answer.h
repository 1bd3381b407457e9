#pragma once
#include <memory>
#include <string>
#include <vector>

#include "server/openai/logprobs.h"
#include "server/openai/request.h"
#include "server/session.h"

namespace quire::server::openai {

// "stop", "length", "abort" or "error", as vLLM says it in answers and metrics.
const char* finish_reason_name(engine::FinishReason reason);

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};

// What an answer says about itself.
struct AnswerInfo {
  bool is_chat = false;
  std::string id;
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string role = "assistant";
  bool logprobs = false;         // of the answer's tokens
  bool prompt_logprobs = false;  // the extra field of vLLM
  bool token_ids = false;
};

// Writes the JSON of an answer, whole or in chunks. A chunk of a choice and the whole choice differ
// only in how the text is wrapped.
class AnswerWriter {
 public:
  AnswerWriter(AnswerInfo info, std::shared_ptr<const text::Tokenizer> tokenizer,
               bool tokens_as_ids);

  // False for deltas that would make a chunk without content.
  bool is_worth_sending(const TextDelta& delta, bool first) const;
  // `first`: the choice's first chunk. `usage` may be null.
  std::string chunk(int64_t index, const Session& session, const TextDelta& delta, bool first,
                    const Usage* usage) const;
  std::string usage_chunk(const Usage& usage) const;
  // One delta a choice, each complete.
  std::string body(const std::vector<std::unique_ptr<Session>>& sessions,
                   const std::vector<TextDelta>& choices, const Usage& usage) const;

 private:
  void open(std::string& out, bool chunk) const;
  void append_choice(std::string& out, int64_t index, const Session& session,
                     const TextDelta& delta, bool chunk, bool first) const;
  void append_chat_text(std::string& out, const TextDelta& delta, bool chunk, bool first) const;
  void append_finish(std::string& out, const TextDelta& delta) const;
  void append_prompt_extras(std::string& out, const Session& session) const;

  const AnswerInfo info_;
  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const LogprobsFormat logprobs_;
};

}  // namespace quire::server::openai
