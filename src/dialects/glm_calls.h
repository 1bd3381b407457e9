#pragma once
#include "dialects/reader.h"

namespace quire::dialects {

// f, then <arg_key>k</arg_key> and <arg_value>v</arg_value> for each argument. From <tool_call> on,
// which is read.
Task<> glm_call(Reader& in);

}  // namespace quire::dialects
