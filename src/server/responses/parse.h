#pragma once
#include <string>
#include <string_view>

#include "server/openai/parse.h"

namespace quire::server::responses {

// What a reasoning item's `encrypted_content` begins with; the reasoning follows. Nothing is secret
// about it: clients that keep no state here (Codex) send back this field and not the text, and the
// next turn's prompt needs the text.
inline constexpr std::string_view kSeal = "quire.reasoning:";

// Bodies of OpenAI's Responses API to the same struct that a chat becomes. Errors name the field by
// its name here.
Result<openai::ChatRequest, ApiError> parse_responses(std::string_view body,
                                                      const openai::ParseContext& context);

// The parts, each in a file of its own: instructions and input; tools and the choice among them.
void parse_input(openai::Fields& fields, const openai::ParseContext& context,
                 openai::ChatInput& out);
// The tools as the client sent them, without those that are left out.
json::array parse_tools(openai::Fields& fields, const openai::ParseContext& context,
                        openai::ChatRequest& out, openai::ResponsesEcho& echo);

// The name that the model knows a tool inside a namespace by.
std::string placed_name(std::string_view space, std::string_view name);

}  // namespace quire::server::responses
