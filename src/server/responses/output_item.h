#pragma once
#include <span>
#include <string>
#include <string_view>

#include "server/openai/request.h"

namespace quire::server::responses {

// A part of an answer: reasoning, a message with one text, or a call of a function.
struct OutputItem {
  enum class Kind { kReasoning, kMessage, kCall };

  Kind kind;
  std::string id;
  std::string text;           // of a call its arguments
  std::string call_id, name;  // of a call; the name as the model knows it
};

// Each appends JSON. `status`: "in_progress", "completed" or "incomplete".
void append_item(std::string& out, const OutputItem& item, std::string_view status,
                 const openai::ResponsesEcho& echo);
// What a message's or a reasoning's content consists of.
void append_part(std::string& out, const OutputItem& item);
// The list of all, of which the last one has `last_status`.
void append_items(std::string& out, std::span<const OutputItem> items, std::string_view last_status,
                  const openai::ResponsesEcho& echo);

}  // namespace quire::server::responses
