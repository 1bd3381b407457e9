#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dialects/dialect.h"
#include "dialects/output_parser.h"

namespace quire::server {

// What is new of one of the answer's tool calls.
struct CallDelta {
  int64_t index = 0;     // among the calls of its choice
  std::string id, name;  // of the call's first delta
  std::string arguments;
};

// How the answers to one request are parsed.
struct ParsingOptions {
  dialects::DialectChoice dialect;
  dialects::ToolSet tools;        // with dialect.calls: those that calls may name
  std::vector<int32_t> kept_ids;  // special tokens that are the dialect's markers
  bool starts_in_reasoning = false;
  bool include_reasoning = true;
  bool one_call = false;  // the answer ends with its first call
  // A grammar sees to it that what begins like a call is one.
  bool calls_are_certain = false;
};

// A piece of a parsed answer.
struct ParsedDelta {
  std::string content, reasoning;
  std::vector<CallDelta> calls;
};

// Content, reasoning and calls of one answer, from its text. What a client has been sent cannot be
// taken back: so a call goes out when it is certain to be one, or when more than kHeldBytes of its
// arguments are there; from then on it stays a call, and if it turns out to be none, its text is
// content besides. Where that is depends on the text alone, not on how it came.
class AnswerParser {
 public:
  static constexpr size_t kHeldBytes = 256;

  explicit AnswerParser(std::shared_ptr<const ParsingOptions> options);

  void push(std::string_view text, ParsedDelta& out);
  // No text follows; `cut`: because there was no room for it.
  void finish(bool cut, ParsedDelta& out);

  bool in_reasoning() const { return parser_.in_reasoning(); }
  bool has_calls() const { return num_sent_ > 0; }
  // With one_call: the call is there, and what follows is dropped.
  bool is_done() const { return done_; }

 private:
  struct Held {
    std::string name, id, arguments;
  };

  void take(const dialects::Events& events, ParsedDelta& out);
  void take_event(const dialects::Event& event, ParsedDelta& out);
  void send_held(ParsedDelta& out);
  std::string choose_id(const std::string& from_model) const;

  const std::shared_ptr<const ParsingOptions> options_;
  dialects::OutputParser parser_;
  std::vector<Held> held_;
  size_t held_bytes_ = 0;
  int64_t num_sent_ = 0;
  bool open_is_sent_ = false;  // more arguments belong to the call that was sent last
  bool call_ended_ = false, done_ = false;
};

}  // namespace quire::server
