#include "server/openai/turn.h"

namespace quire::server::openai {
namespace {

json::string_view view(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

void AssistantTurn::add_call(std::string_view id, std::string_view name, json::value arguments) {
  calls.push_back(json::object{
      {"id", view(id)},
      {"type", "function"},
      {"function", json::object{{"name", view(name)}, {"arguments", std::move(arguments)}}}});
}

json::object AssistantTurn::take() {
  json::object turn{{"role", "assistant"}, {"content", text.take()}};
  if (thoughts.any()) {
    // Templates know it as reasoning_content, a few as reasoning.
    const std::string thought = thoughts.take();
    for (const char* key : {"reasoning", "reasoning_content"}) turn[key] = thought;
  }
  if (!calls.empty()) turn["tool_calls"] = std::exchange(calls, {});
  return turn;
}

void join_message(json::array& messages, std::string_view role, std::string_view content) {
  if (!messages.empty()) {
    json::object& last = messages.back().get_object();
    if (last.at("role").get_string() == view(role)) {
      json::string& text = last.at("content").get_string();
      text += '\n';
      text += view(content);
      return;
    }
  }
  add_message(messages, role, content);
}

void add_message(json::array& messages, std::string_view role, std::string_view content) {
  messages.push_back(json::object{{"role", view(role)}, {"content", view(content)}});
}

void add_result(json::array& messages, std::string_view call_id, std::string_view content) {
  messages.push_back(
      json::object{{"role", "tool"}, {"tool_call_id", view(call_id)}, {"content", view(content)}});
}

}  // namespace quire::server::openai
