#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace quire {

// `text` on one line of a log or terminal: for strings that a client or a checkpoint chose. Control
// characters (ESC and newlines among them), invalid UTF-8 and characters that reorder or break
// lines are escaped as \n, \x1b or \u202e. What follows the first `max_bytes` becomes "...".
// The result is for people: a backslash stays one, so it cannot be read back.
std::string printable(std::string_view text, size_t max_bytes = 400);

}  // namespace quire
