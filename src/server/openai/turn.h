#pragma once
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"

namespace quire::server::openai {

// Texts joined by line ends, as the parts of a chat's message are.
class JoinedText {
 public:
  void add(std::string_view text) {
    if (std::exchange(any_, true)) text_ += '\n';
    text_ += text;
  }
  bool any() const { return any_; }
  std::string take() {
    any_ = false;
    return std::exchange(text_, {});
  }

 private:
  std::string text_;
  bool any_ = false;
};

// A model's turn, put together from what an API sends of it in pieces.
struct AssistantTurn {
  JoinedText text, thoughts;
  json::array calls;

  bool any() const { return text.any() || thoughts.any() || !calls.empty(); }
  void add_call(std::string_view id, std::string_view name, json::value arguments);
  // The message of a chat. The turn is empty then.
  json::object take();
};

// Adds a text to the last message if that has the same role, else as a message.
void join_message(json::array& messages, std::string_view role, std::string_view content);
void add_message(json::array& messages, std::string_view role, std::string_view content);
// A tool's result.
void add_result(json::array& messages, std::string_view call_id, std::string_view content);

}  // namespace quire::server::openai
