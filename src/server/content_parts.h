#pragma once
#include "server/openai/request.h"
#include "text/chat_template.h"

namespace quire::server {

// What a chat template makes of the contents of messages.
struct ContentForm {
  bool walks_parts = false;  // a list of parts gives the text of each
  bool takes_text = true;    // a text gives itself
};

// Found out by trying: a template that walks over parts shows their texts and nothing else of them.
// `budget`: of the request that brings the template; null: the limits of rendering alone.
ContentForm content_form(const text::ChatTemplate& chat_template, WorkBudget* budget = nullptr);

// Messages whose contents are texts, as the template wants them: with a part for each text, if it
// reads parts only.
json::array in_form(const ContentForm& form, json::array messages);
// The conversation as the template wants it: the parts that the client sent, or their texts joined,
// or a part for each text.
json::array messages_in(const ContentForm& form, const openai::ChatInput& chat);

}  // namespace quire::server
