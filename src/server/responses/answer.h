#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/answer_format.h"
#include "server/responses/output_item.h"

namespace quire::server::responses {

// What an answer says about itself.
struct ResponseInfo {
  std::string id;  // the request's, without a prefix
  std::string model;
  int64_t created = 0;  // seconds since 1970
  std::shared_ptr<const openai::ResponsesEcho> echo;
  std::string fingerprint = {};  // empty: none
};

// Writes answers as OpenAI's Responses API does: items of reasoning, text and calls. What a model
// thinks comes as reasoning_text: it is the model's own words and no summary.
class ResponseFormat final : public AnswerFormat {
 public:
  explicit ResponseFormat(ResponseInfo info) : info_(std::move(info)) {}

  AnswerBody body(const std::vector<std::unique_ptr<Session>>& sessions,
                  const std::vector<TextDelta>& choices, const Usage& usage) const override;
  std::string first_events() override;
  std::string events(int64_t index, const Session& session, const TextDelta& delta,
                     const Usage& usage) override;
  std::string last_events(const Usage& usage) override;
  std::string error_events(const ApiError& error) override;

 private:
  using Kind = OutputItem::Kind;

  // How an answer stands. Null: not known yet, or not so.
  struct State {
    const char* status = "in_progress";
    const char* last_item_status = "completed";
    const Usage* usage = nullptr;
    const ApiError* error = nullptr;
  };
  static State ended(const Finish& finish, const Usage& usage);
  void append_response(std::string& out, std::span<const OutputItem> items,
                       const State& state) const;

  OutputItem new_item(Kind kind, size_t index) const;
  std::vector<OutputItem> items_of(const TextDelta& answer) const;

  // `members`: of the event beside its type and number.
  void add_event(std::string_view type, std::string_view members, std::string& out);
  void add_response(std::string_view type, const State& state, std::string& out);
  // The members that say which item an event is about.
  std::string place(bool has_content) const;
  void open(OutputItem item, std::string& out);
  void close(const char* status, std::string& out);
  void write_text(Kind kind, std::string_view text, std::string& out);
  bool is_open_call(const CallDelta& call) const;
  void write_call(const CallDelta& call, std::string& out);

  const ResponseInfo info_;
  std::vector<OutputItem> items_;  // of a stream, with what has been sent
  bool is_open_ = false;           // the last of them
  int64_t open_call_ = -1;         // its index among the calls
  int64_t num_events_ = 0;
  Finish finish_;
};

}  // namespace quire::server::responses
