#pragma once
#include <string>
#include <string_view>

namespace quire::cli {

// `text` for a terminal, with newlines and tabs as they are. Other control characters are escaped
// as by printable(): what a model writes must not move the cursor or change the terminal.
std::string terminal_text(std::string_view text);

}  // namespace quire::cli
