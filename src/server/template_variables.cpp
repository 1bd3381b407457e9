#include "server/template_variables.h"

namespace quire::server {
namespace {

// Switches of templates: Qwen's, and that of DeepSeek and Granite.
constexpr const char* kSwitches[] = {"enable_thinking", "thinking"};

const char* find_switch(const text::ChatTemplate& chat_template) {
  for (const char* name : kSwitches)
    if (chat_template.reads(name)) return name;
  return nullptr;
}

ApiError unsupported(const std::string& field, const char* reason) {
  return ApiError{400, "`" + field + "` is not supported: " + reason, field,
                  "unsupported_parameter"};
}

// False: the client's own variable of that name says something else.
bool set(json::object& variables, const char* name, const json::value& value) {
  const auto [entry, is_new] = variables.emplace(name, value);
  return is_new || entry->value() == value;
}

Result<void, ApiError> set_thinking(const std::string& field, bool thinking,
                                    const text::ChatTemplate& chat_template,
                                    json::object& variables) {
  const char* name = find_switch(chat_template);
  if (name == nullptr)
    return Err{unsupported(field, "this model's chat template cannot switch thinking on or off")};
  if (set(variables, name, thinking)) return {};
  return Err{ApiError{400, "`" + field + "` contradicts `chat_template_kwargs`", field}};
}

}  // namespace

Result<json::object, ApiError> template_variables(const openai::ChatInput& chat,
                                                  const text::ChatTemplate& chat_template) {
  json::object variables = chat.template_kwargs;
  if (chat.tools && !chat_template.reads("tools"))
    return Err{unsupported("tools", "this model's chat template does not show tools")};
  if (chat.documents && !chat.documents->empty() && !chat_template.reads("documents"))
    return Err{unsupported("documents", "this model's chat template does not show documents")};
  const openai::ReasoningWish& wish = chat.reasoning;
  const auto is_possible = [&](const char* name) {
    return !wish.is_hint || (name != nullptr && chat_template.reads(name));
  };
  if (wish.thinking && is_possible(find_switch(chat_template))) {
    auto done = set_thinking(wish.thinking_field, *wish.thinking, chat_template, variables);
    if (!done) return Err{done.error()};
  }
  if (!wish.effort || !is_possible("reasoning_effort")) return variables;
  const std::string& field = wish.effort_field;
  if (chat_template.reads("reasoning_effort")) {
    if (set(variables, "reasoning_effort", json::value(*wish.effort))) return variables;
    return Err{ApiError{400, "`" + field + "` contradicts `chat_template_kwargs`", field}};
  }
  if (*wish.effort != "none") {
    return Err{unsupported(field, find_switch(chat_template) != nullptr
                                      ? "this model's chat template knows no efforts but \"none\"; "
                                        "`enable_thinking` switches thinking on and off"
                                      : "this model's chat template has no efforts")};
  }
  auto done = set_thinking(field, false, chat_template, variables);
  if (!done) return Err{done.error()};
  return variables;
}

}  // namespace quire::server
