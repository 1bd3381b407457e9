#pragma once
#include "base/json.h"
#include "text/chat_template.h"

namespace quire::server {

// Whether a template refuses ids of calls that are not nine letters and digits, as Mistral's do.
// Found out by trying. `budget`: of the request that brings the template; null: the limits of
// rendering alone.
bool wants_short_ids(const text::ChatTemplate& chat_template, WorkBudget* budget = nullptr);

// Gives calls and their results such ids in place of others: the same for the same id, in every
// request, so that a conversation's prefix stays what it was.
void shorten_call_ids(json::array& messages);

}  // namespace quire::server
