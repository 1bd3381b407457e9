#pragma once
#include <string>
#include <string_view>

#include "dialects/reader.h"

namespace quire::dialects {

// A literal of Python as JSON, written to the open call's arguments as it comes. A string is held
// until its end with `type_of` (an argument's name) if that argument can be no string: models
// quote numbers, too.
Task<> python_literal(Reader& in, std::string_view type_of);
// A name: letters, digits, `_`, and `.` between them; empty if none comes.
Task<std::string> python_name(Reader& in);
// The name of a tool or of its argument, which may also have `-` and begin with anything.
Task<std::string> python_tool_name(Reader& in);

// What names of tools and arguments cannot hold there.
inline constexpr std::string_view kNotInPythonNames = " \t\n!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~";

}  // namespace quire::dialects
