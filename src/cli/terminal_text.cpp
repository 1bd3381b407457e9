#include "cli/terminal_text.h"

#include "base/printable.h"

namespace quire::cli {

std::string terminal_text(std::string_view text) {
  std::string out;
  for (;;) {
    const size_t end = text.find_first_of("\n\t");
    out += printable(text.substr(0, end), std::string_view::npos);
    if (end == std::string_view::npos) return out;
    out += text[end];
    text.remove_prefix(end + 1);
  }
}

}  // namespace quire::cli
