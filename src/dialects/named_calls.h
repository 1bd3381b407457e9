#pragma once
#include "dialects/reader.h"

namespace quire::dialects {

// Calls with the name before the JSON of their arguments. Each reads from its marker on.
Task<> mistral_calls(Reader& in);    // [TOOL_CALLS]
Task<> deepseek_calls(Reader& in);   // the section's marker
Task<> deepseek_call(Reader& in);    // one call's marker, the section's is missing
Task<> kimi_calls(Reader& in);       // the section's marker
Task<> kimi_call(Reader& in);        // one call's marker
Task<> harmony_message(Reader& in);  // anything a message may begin with

}  // namespace quire::dialects
