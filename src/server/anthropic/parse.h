#pragma once
#include <string_view>

#include "server/openai/parse.h"

namespace quire::server::anthropic {

// Claude Code begins its system prompt with a block that begins so and ends with a number that
// differs with every request: no prompt would be in the prefix cache. Such blocks are left out,
// unless ParseContext says otherwise.
inline constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

// Bodies of Anthropic's Messages API to the same struct that a chat becomes. Errors name the field
// by its name here.
Result<openai::ChatRequest, ApiError> parse_messages(std::string_view body,
                                                     const openai::ParseContext& context);
// The same without `max_tokens`, which nothing is generated for.
Result<openai::ChatRequest, ApiError> parse_count_tokens(std::string_view body,
                                                         const openai::ParseContext& context);

// The parts, each in a file of its own: system and messages; tools and the choice among them.
void parse_turns(openai::Fields& fields, const openai::ParseContext& context,
                 openai::ChatRequest& out);
void parse_tools(openai::Fields& fields, const openai::ParseContext& context,
                 openai::ChatRequest& out);

}  // namespace quire::server::anthropic
