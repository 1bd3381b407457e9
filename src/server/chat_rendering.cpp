#include "server/chat_rendering.h"

#include "server/call_ids.h"

namespace quire::server {
namespace {

// Arguments that are text become the one argument of an object.
json::array with_object_arguments(json::array messages) {
  for (json::value& message : messages) {
    json::value* calls = message.get_object().if_contains("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (json::value& call : calls->get_array()) {
      json::value& arguments = call.at("function").as_object()["arguments"];
      if (!arguments.is_object()) arguments = json::object{{"arguments", arguments}};
    }
  }
  return messages;
}

// Shows a template one conversation in one form after the other, until it takes one.
class Attempts {
 public:
  Attempts(const text::ChatTemplate& chat_template, const TemplateForms& forms,
           const text::ChatTemplateInput& input)
      : template_(chat_template), forms_(forms), input_(input) {}

  // The error is the first one: it is about what the client sent.
  Result<std::string, std::string> render(const openai::ChatInput& chat);

 private:
  bool take(json::array messages);
  bool take_other_roles(const openai::ChatInput& chat);

  const text::ChatTemplate& template_;
  const TemplateForms& forms_;
  text::ChatTemplateInput input_;
  std::string rendered_, first_error_;
};

// True: no other form needs to be tried.
bool Attempts::take(json::array messages) {
  if (!forms_.roles.shows_developer) rename_developers(messages);
  if (forms_.short_ids) shorten_call_ids(messages);
  const std::string text = dump_json(in_form(forms_.content, std::move(messages)));
  input_.messages = text;
  auto result = template_.render(input_);
  input_.messages = {};
  if (result) {
    rendered_ = std::move(*result);
    first_error_.clear();
  } else if (first_error_.empty()) {
    first_error_ = result.error();
  }
  return result.ok() || input_.budget->is_spent();
}

bool Attempts::take_other_roles(const openai::ChatInput& chat) {
  json::array messages = with_object_arguments(chat.messages);
  for (const RoleStep step : role_steps()) {
    json::array changed = step(messages);
    if (changed == messages) continue;
    messages = std::move(changed);
    if (take(messages)) return true;
  }
  return false;
}

Result<std::string, std::string> Attempts::render(const openai::ChatInput& chat) {
  const bool roles_may_change = !chat.continue_final_message;
  const bool loses_texts =
      roles_may_change && forms_.roles.drops_late_system && has_late_system(chat.messages);
  bool done = loses_texts && take_other_roles(chat);
  if (!done) done = take(messages_in(forms_.content, chat));
  if (!done && forms_.content.walks_parts && !chat.parts.empty()) done = take(chat.messages);
  // A template that takes arguments apart cannot take text apart.
  if (!done && chat.has_text_arguments) done = take(with_object_arguments(chat.messages));
  if (!done && roles_may_change && !loses_texts) done = take_other_roles(chat);
  if (!first_error_.empty()) return Err{std::move(first_error_)};
  return std::move(rendered_);
}

}  // namespace

TemplateForms forms_of(const text::ChatTemplate& chat_template, WorkBudget* budget) {
  return {content_form(chat_template, budget), role_form(chat_template, budget),
          wants_short_ids(chat_template, budget)};
}

Result<std::string, std::string> render_chat(const text::ChatTemplate& chat_template,
                                             const TemplateForms& forms,
                                             const text::ChatTemplateInput& input,
                                             const openai::ChatInput& chat) {
  return Attempts(chat_template, forms, input).render(chat);
}

}  // namespace quire::server
