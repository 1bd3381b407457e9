#include "dialects/search_pattern.h"

#include <vector>

namespace quire::dialects {
namespace {

// The alternatives of the whole pattern, with slashes and line ends escaped.
std::vector<std::string> alternatives(std::string_view pattern) {
  std::vector<std::string> all(1);
  int depth = 0;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    std::string& one = all.back();
    if (c == '\\' && i + 1 < pattern.size()) {
      one += c;
      one += pattern[++i];
      continue;
    }
    if (c == '|' && depth == 0 && !in_class) {
      all.emplace_back();
      continue;
    }
    if (in_class) {
      in_class = c != ']';
    } else {
      in_class = c == '[';
      depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    }
    if (c == '\n') {
      one += "\\n";
      continue;
    }
    if (c == '/') one += '\\';
    one += c;
  }
  return all;
}

bool ends_with_anchor(std::string_view text) {
  if (!text.ends_with('$')) return false;
  size_t backslashes = 0;
  while (backslashes + 1 < text.size() && text[text.size() - 2 - backslashes] == '\\')
    ++backslashes;
  return backslashes % 2 == 0;
}

}  // namespace

std::string search_pattern(std::string_view pattern) {
  constexpr std::string_view kAny = "(?s:.*)";
  std::string out;
  for (std::string_view one : alternatives(pattern)) {
    const bool from_start = one.starts_with('^');
    if (from_start) one.remove_prefix(1);
    const bool to_end = ends_with_anchor(one);
    if (to_end) one.remove_suffix(1);
    out += out.empty() ? "(?:" : "|";
    out += (from_start ? "(?:" : std::string(kAny) + "(?:") + std::string(one) + ")";
    if (!to_end) out += kAny;
  }
  return out + ")";
}

}  // namespace quire::dialects
