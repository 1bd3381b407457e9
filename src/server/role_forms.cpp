#include "server/role_forms.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace quire::server {
namespace {

constexpr const char* kProbe = "quire's text of a role";

json::string_view text_at(const json::object& message, const char* key) {
  const json::value* text = message.if_contains(key);
  return text != nullptr && text->is_string() ? json::string_view(text->get_string())
                                              : json::string_view();
}

json::string_view content_of(const json::value& message) {
  return text_at(message.get_object(), "content");
}

bool has_role(const json::value& message, json::string_view role) {
  return text_at(message.get_object(), "role") == role;
}

bool is_system(const json::value& message) {
  return has_role(message, "system") || has_role(message, "developer");
}

bool has_calls(const json::value& message) {
  const json::value* calls = message.get_object().if_contains("tool_calls");
  return calls != nullptr && calls->is_array() && !calls->get_array().empty();
}

json::object message_of(json::string_view role, json::string_view content) {
  return {{"role", role}, {"content", content}};
}

// Texts are joined by line ends, as the parts of a message are.
void append_text(json::object& message, const char* key, json::string_view more) {
  if (more.empty()) return;
  json::value& text = message[key];
  if (!text.is_string() || text.get_string().empty()) {
    text = more;
    return;
  }
  text.get_string() += '\n';
  text.get_string() += more;
}

// As a turn of its own, or behind the last one of the same role.
void add_text(json::array& out, const json::value& message, json::string_view role) {
  if (!out.empty() && has_role(out.back(), role))
    return append_text(out.back().get_object(), "content", content_of(message));
  if (has_role(message, role)) {
    out.push_back(message);
  } else {
    out.push_back(message_of(role, content_of(message)));
  }
}

json::array one_system_first(const json::array& messages) {
  json::array out;
  bool begins = true;
  for (const json::value& message : messages) {
    begins = begins && is_system(message);
    if (begins) {
      add_text(out, message, "system");
    } else if (is_system(message) || has_role(message, "user")) {
      add_text(out, message, "user");
    } else {
      out.push_back(message);
    }
  }
  return out;
}

void join_turns(json::object& turn, const json::object& more) {
  for (const char* key : {"content", "reasoning", "reasoning_content"})
    append_text(turn, key, text_at(more, key));
  const json::value* calls = more.if_contains("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  json::value& all = turn["tool_calls"];
  if (!all.is_array()) all = json::array();
  for (const json::value& call : calls->get_array()) all.get_array().push_back(call);
}

json::array turns_in_order(const json::array& messages) {
  json::array out;
  bool called = false;  // the model's last turn has calls, and only results have come since
  for (const json::value& message : messages) {
    const bool is_answer = has_role(message, "assistant"), is_result = has_role(message, "tool");
    called = is_answer ? has_calls(message) : called && is_result;
    const bool begins = out.empty() || has_role(out.back(), "system");
    if (is_answer && begins) out.push_back(message_of("user", ""));
    if (is_answer && has_role(out.back(), "assistant")) {
      join_turns(out.back().get_object(), message.get_object());
    } else if (has_role(message, "user") || (is_result && !called)) {
      add_text(out, message, "user");
    } else {
      out.push_back(message);
    }
  }
  return out;
}

json::array questions_in_results(const json::array& messages) {
  json::array out;
  for (const json::value& message : messages) {
    const bool joins = has_role(message, "user") && !out.empty() && has_role(out.back(), "tool");
    if (joins) {
      append_text(out.back().get_object(), "content", content_of(message));
    } else {
      out.push_back(message);
    }
  }
  return out;
}

json::array no_system(const json::array& messages) {
  if (messages.empty() || !has_role(messages.front(), "system")) return messages;
  json::array out{message_of("user", content_of(messages.front()))};
  for (size_t i = 1; i < messages.size(); ++i) {
    if (i == 1 && has_role(messages[i], "user")) {
      add_text(out, messages[i], "user");
    } else {
      out.push_back(messages[i]);
    }
  }
  return out;
}

enum class Shown { kYes, kNo, kRefused };

// What a template does with the probe's text in these turns.
Shown shown(const text::ChatTemplate& chat_template, const json::array& turns, WorkBudget* budget) {
  const std::string messages = dump_json(turns);
  text::ChatTemplateInput input;
  input.messages = messages;
  input.budget = budget;
  const auto rendered = chat_template.render(input);
  if (!rendered) return Shown::kRefused;
  return rendered->find(kProbe) != std::string::npos ? Shown::kYes : Shown::kNo;
}

}  // namespace

RoleForm role_form(const text::ChatTemplate& chat_template, WorkBudget* budget) {
  const json::object question = message_of("user", "Hi");
  RoleForm form;
  form.shows_developer =
      shown(chat_template, {message_of("developer", kProbe), question}, budget) == Shown::kYes;
  form.drops_late_system =
      shown(chat_template,
            {question, message_of("assistant", "Yes"), message_of("system", kProbe), question},
            budget) == Shown::kNo;
  return form;
}

void rename_developers(json::array& messages) {
  for (json::value& message : messages)
    if (has_role(message, "developer")) message.get_object()["role"] = "system";
}

bool has_late_system(const json::array& messages) {
  const auto first = std::ranges::find_if_not(messages, is_system);
  return std::any_of(first, messages.end(), is_system);
}

std::span<const RoleStep> role_steps() {
  static constexpr std::array<RoleStep, 4> kSteps = {one_system_first, turns_in_order,
                                                     questions_in_results, no_system};
  return kSteps;
}

}  // namespace quire::server
