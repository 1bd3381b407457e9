#include "server/content_parts.h"

namespace quire::server {
namespace {

constexpr const char* kFirst = "quire's first text";
constexpr const char* kSecond = "quire's second text";

json::array text_parts(std::initializer_list<json::string_view> texts) {
  json::array parts;
  for (const json::string_view text : texts)
    parts.push_back(json::object{{"type", "text"}, {"text", text}});
  return parts;
}

// What the template shows of a question with this content; nothing if it refuses it.
std::string shown(const text::ChatTemplate& chat_template, json::value content,
                  WorkBudget* budget) {
  const std::string messages =
      dump_json(json::array{json::object{{"role", "user"}, {"content", std::move(content)}}});
  text::ChatTemplateInput input;
  input.messages = messages;
  input.budget = budget;
  const auto rendered = chat_template.render(input);
  return rendered ? *rendered : std::string();
}

bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

ContentForm content_form(const text::ChatTemplate& chat_template, WorkBudget* budget) {
  const std::string of_parts = shown(chat_template, text_parts({kFirst, kSecond}), budget);
  // A list that is printed as it is shows its keys, too.
  const bool is_printed = holds(of_parts, "'type'") || holds(of_parts, "\"type\"");
  ContentForm form;
  form.walks_parts = holds(of_parts, kFirst) && holds(of_parts, kSecond) && !is_printed;
  form.takes_text = !form.walks_parts || holds(shown(chat_template, kFirst, budget), kFirst);
  return form;
}

json::array in_form(const ContentForm& form, json::array messages) {
  if (!form.walks_parts || form.takes_text) return messages;
  for (json::value& message : messages) {
    json::value& content = message.get_object()["content"];
    if (content.is_string()) content = text_parts({content.get_string()});
  }
  return messages;
}

json::array messages_in(const ContentForm& form, const openai::ChatInput& chat) {
  json::array messages = chat.messages;
  if (form.walks_parts)
    for (const auto& [index, parts] : chat.parts) messages[index].get_object()["content"] = parts;
  return in_form(form, std::move(messages));
}

}  // namespace quire::server
