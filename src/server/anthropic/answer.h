#pragma once
#include <string>
#include <vector>

#include "server/answer_format.h"

namespace quire::server::anthropic {

// What an answer says about itself.
struct MessageInfo {
  std::string id, request_id, model;
  bool cut_by_context = false;  // max_tokens was larger than what the context had left
};

// Writes answers as Anthropic's Messages API does: content blocks of thinking, text and tool_use.
class MessageFormat final : public AnswerFormat {
 public:
  explicit MessageFormat(MessageInfo info) : info_(std::move(info)) {}

  void add_headers(http::Response& head) const override;
  AnswerBody body(const std::vector<std::unique_ptr<Session>>& sessions,
                  const std::vector<TextDelta>& choices, const Usage& usage) const override;
  std::string events(int64_t index, const Session& session, const TextDelta& delta,
                     const Usage& usage) override;
  std::string last_events(const Usage& usage) override;
  std::string error_events(const ApiError& error) override;

 private:
  enum class Block { kNone, kThinking, kText, kToolUse };

  // The message without its content: what it begins with.
  void append_begin(std::string& out) const;
  std::string message(const TextDelta& answer, const Usage& usage) const;
  const char* stop_reason(const Finish& finish) const;
  void append_stop(std::string& out, const Finish& finish) const;
  void start(const Usage& usage, std::string& out);
  void open(Block block, std::string_view content_block, std::string& out);
  void close(std::string& out);
  void write_delta(const char* type, const char* key, std::string_view text,
                   std::string& out) const;
  void write_call(const CallDelta& call, std::string& out);

  const MessageInfo info_;
  bool begun_ = false;
  Block open_ = Block::kNone;
  int64_t num_blocks_ = 0;  // begun
  int64_t open_call_ = -1;  // its index among the calls
  Finish finish_;
};

}  // namespace quire::server::anthropic
