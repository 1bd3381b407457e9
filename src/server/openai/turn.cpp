#include "server/openai/turn.h"

namespace quire::server::openai {
namespace {

json::string_view view(std::string_view text) { return {text.data(), text.size()}; }

std::string_view text_at(const json::value& message, const char* key) {
  const json::value* text = message.get_object().if_contains(key);
  if (text == nullptr || !text->is_string()) return {};
  return {text->get_string().data(), text->get_string().size()};
}

bool is_system(const json::value& message) {
  const std::string_view role = text_at(message, "role");
  return role == "system" || role == "developer";
}

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

bool has_loose_roles(const json::array& messages) {
  for (size_t i = 1; i < messages.size(); ++i) {
    if (is_system(messages[i])) return true;
    if (text_at(messages[i], "role") == "user" && text_at(messages[i - 1], "role") == "user")
      return true;
  }
  return false;
}

json::array with_strict_roles(const json::array& messages) {
  json::array out;
  bool begins = true;
  for (const json::value& message : messages) {
    begins = begins && is_system(message);
    if (begins) {
      join_message(out, "system", text_at(message, "content"));
    } else if (is_system(message) || text_at(message, "role") == "user") {
      join_message(out, "user", text_at(message, "content"));
    } else {
      out.push_back(message);
    }
  }
  return out;
}

}  // namespace quire::server::openai
