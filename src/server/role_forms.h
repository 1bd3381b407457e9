#pragma once
#include <span>

#include "base/json.h"
#include "text/chat_template.h"

namespace quire::server {

// What a chat template does with roles that not all of them know. Found out by trying.
struct RoleForm {
  bool shows_developer = true;     // else its texts would be lost, or refused
  bool drops_late_system = false;  // system texts behind the first turn are lost without a word
};

// `budget`: of the request that brings the template; null: the limits of rendering alone.
RoleForm role_form(const text::ChatTemplate& chat_template, WorkBudget* budget = nullptr);

// Developer messages become system messages.
void rename_developers(json::array& messages);

// Whether there is a system text behind the first turn.
bool has_late_system(const json::array& messages);

// Forms of a conversation for templates that refuse it, each from the one before, the least change
// first:
// 1. One system message, the first, and no two turns of the user in a row. What follows one another
//    is joined; later system texts become the user's. They stay where they are, so that the prefix
//    cache still fits.
// 2. The user begins (with an empty turn, if need be), no two turns of the model follow one
// another,
//    and a tool's result without its call is the user's text.
// 3. What a user says right behind a tool's result is part of it.
// 4. The system text stands before the user's first.
using RoleStep = json::array (*)(const json::array& messages);
std::span<const RoleStep> role_steps();

}  // namespace quire::server
