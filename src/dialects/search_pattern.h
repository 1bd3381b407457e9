#pragma once
#include <string>
#include <string_view>

namespace quire::dialects {

// A pattern of a JSON schema, which may match anywhere in a string, as a regular expression for the
// whole string, between slashes: what is not tied to an end by `^` or `$` may have text there.
std::string search_pattern(std::string_view pattern);

}  // namespace quire::dialects
