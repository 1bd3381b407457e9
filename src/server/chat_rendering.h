#pragma once
#include <string>

#include "base/result.h"
#include "server/content_parts.h"
#include "server/openai/request.h"
#include "server/role_forms.h"
#include "text/chat_template.h"

namespace quire::server {

// What a chat template makes of contents and roles.
struct TemplateForms {
  ContentForm content;
  RoleForm roles;
  bool short_ids = false;  // of calls (call_ids.h)
};
TemplateForms forms_of(const text::ChatTemplate& chat_template, WorkBudget* budget);

// The text of a conversation; `input` has everything but its messages. A conversation that the
// template refuses is tried in other forms (role_forms.h); what it accepts is not changed, but for
// texts that it would lose without a word. The error is what it said to the first form.
Result<std::string, std::string> render_chat(const text::ChatTemplate& chat_template,
                                             const TemplateForms& forms,
                                             const text::ChatTemplateInput& input,
                                             const openai::ChatInput& chat);

}  // namespace quire::server
