#include "cli/foreign_flags.h"

#include <algorithm>

namespace quire::cli {
namespace {

bool has_word(std::string_view words, std::string_view word) {
  while (!words.empty()) {
    const size_t space = std::min(words.find(' '), words.size());
    if (words.substr(0, space) == word) return true;
    words.remove_prefix(std::min(words.size(), space + 1));
  }
  return false;
}

bool is_value_of(const ForeignFlag& flag, std::string_view argument) {
  if (flag.values != kNumbers) return has_word(flag.values, argument);
  return !argument.empty() && argument.find_first_not_of("0123456789") == std::string_view::npos;
}

// Letters to change to make one of the other: insertions, deletions, replacements, and swaps of
// neighbours.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

// vLLM takes underscores in its flags' names, and no flag of Quire's has one.
std::string with_dashes(std::string name) {
  if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

const ForeignFlag* find_foreign_flag(std::string name) {
  if (name.size() < 2 || name[0] != '-') return nullptr;
  std::replace(name.begin(), name.end(), '_', '-');
  for (const ForeignFlag& flag : foreign_flags())
    if (has_word(flag.names, name)) return &flag;
  // vLLM's switches have a form that turns them off. It changes nothing where the other does not.
  if (!name.starts_with("--no-")) return nullptr;
  const ForeignFlag* on = find_foreign_flag("--" + name.substr(5));
  return on && !on->takes_value && on->harmless == "*" ? on : nullptr;
}

Result<std::string, std::string> judge_foreign_flag(const ForeignFlag& flag,
                                                    const std::string& name,
                                                    const std::string& value) {
  const std::string shown = name + (value.empty() ? "" : " " + value);
  const bool is_on = !flag.takes_value && value.empty() && !flag.harmless.empty();
  if (flag.harmless == "*" || is_on || has_word(flag.harmless, value))
    return shown + " changes nothing: " + std::string(flag.reason);
  std::string line = shown + ": " + std::string(flag.reason);
  if (!flag.harmless.empty()) line += "; accepted: " + std::string(flag.harmless);
  return Err{line};
}

Result<ScreenedArguments, std::string> screen_foreign_flags(
    const std::vector<std::string>& arguments, const TakesValue& takes_value) {
  ScreenedArguments out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      out.arguments.insert(out.arguments.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i),
                           arguments.end());
      break;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const ForeignFlag* flag = find_foreign_flag(name);
    if (flag == nullptr) {
      if (equals + 1 == argument.size() && takes_value(with_dashes(name))) {
        out.arguments.insert(out.arguments.end(), {with_dashes(name), ""});
        continue;
      }
      out.arguments.push_back(with_dashes(name) + argument.substr(name.size()));
      if (takes_value(out.arguments.back()) && i + 1 < arguments.size())
        out.arguments.push_back(arguments[++i]);
      continue;
    }
    std::string value;
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (i + 1 < arguments.size() &&
               (flag->takes_value || is_value_of(*flag, arguments[i + 1]))) {
      value = arguments[++i];
    }
    while (flag->values == kNumbers && i + 1 < arguments.size() &&
           is_value_of(*flag, arguments[i + 1]))
      value += " " + arguments[++i];
    auto notice = judge_foreign_flag(*flag, name, value);
    if (!notice) return Err{notice.error()};
    out.notices.push_back(std::move(*notice));
  }
  return out;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::string nearest;
  size_t best = std::min<size_t>(3, std::max<size_t>(1, word.size() / 3)) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace quire::cli
