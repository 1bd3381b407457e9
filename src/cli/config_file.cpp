#include "cli/config_file.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/printable.h"
#include "base/trimmed.h"
#include "cli/foreign_flags.h"
#include "formats/data_file.h"

extern char** environ;

namespace quire::cli {
namespace {

constexpr size_t kMaxConfigBytes = size_t{1} << 20;
constexpr std::string_view kPrefix = "QUIRE_";

// Without a comment, which a "#" at the beginning or behind white space starts, outside a value in
// quotes. Quotes inside a value are letters: an apostrophe is one.
std::string_view without_comment(std::string_view line) {
  char quote = 0, before = 0;  // the last letter that is no white space
  for (size_t i = 0; i < line.size(); ++i) {
    const bool begins = before == ':' || before == '=';
    if (line[i] != ' ' && line[i] != '\t') before = line[i];
    if (quote != 0) {
      if (line[i] == quote) quote = 0;
    } else if (begins && (line[i] == '"' || line[i] == '\'')) {
      quote = line[i];
    } else if (line[i] == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) {
      return line.substr(0, i);
    }
  }
  return line;
}

std::string unquoted(std::string_view value) {
  const bool quoted = value.size() >= 2 && (value.front() == '"' || value.front() == '\'') &&
                      value.back() == value.front();
  return std::string(quoted ? value.substr(1, value.size() - 2) : value);
}

// --max-model-len of "max_model_len" and "--max-model-len".
std::string flag_name(std::string name) {
  name.erase(0, std::min(name.find_first_not_of('-'), name.size()));
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

// QUIRE_MAX_MODEL_LEN of an option's first long name; empty if it has none.
std::string variable_of(const CLI::Option& option) {
  if (option.get_lnames().empty()) return "";
  std::string name(kPrefix);
  for (const char c : option.get_lnames().front())
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

bool is_settable(const CLI::Option& option) {
  const std::string variable = variable_of(option);
  return !variable.empty() && variable != "QUIRE_HELP" && variable != "QUIRE_CONFIG";
}

std::vector<std::string> flag_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (is_settable(*option))
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// A list without the blanks around its parts.
std::string joined_list(const std::string& value, char delimiter) {
  std::string list;
  size_t begin = 0;
  for (size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = value.find(delimiter, begin);
    if (begin > 0) list += delimiter;
    list += trimmed(std::string_view(value).substr(begin, end - begin));
  }
  return list;
}

// What CLI11 is to see as the option's value: of lists, no blanks; of switches, what the name with
// this value means (--no-x true is x false).
std::string value_for(CLI::Option& option, const std::string& flag, const std::string& value,
                      const std::string& where) {
  if (option.get_delimiter() != 0) return joined_list(value, option.get_delimiter());
  if (option.get_expected_max() != 0) return value;
  if (value != "true" && value != "false")
    throw LoadError(where + ": " + flag + " is a switch: true or false");
  return option.get_flag_value(flag.substr(2), value);
}

CLI::Option& find_option(CLI::App& command, const ConfigEntry& entry, const std::string& file) {
  const std::string flag = flag_name(entry.name);
  CLI::Option* option = command.get_option_no_throw(flag);
  if (option != nullptr && is_settable(*option)) return *option;
  const std::string near = nearest_word(flag, flag_names(command));
  throw LoadError(file + ":" + std::to_string(entry.line) + ": there is no flag " +
                  printable(flag) + (near.empty() ? "" : "; did you mean " + near.substr(2) + "?"));
}

// What is said of an entry that is another program's flag and changes nothing; empty if nothing is
// to be said. A switch that is off is one that was not given, or its opposite.
std::string foreign_notice(const ConfigEntry& entry, const std::string& where) {
  std::string name = flag_name(entry.name), value = entry.value;
  const ForeignFlag* flag = find_foreign_flag(name);
  if (!flag->takes_value && flag->values.empty()) {
    if (value != "true" && value != "false")
      throw LoadError(where + ": " + name + " is a switch: true or false");
    if (value == "false") {
      name.insert(2, "no-");
      flag = find_foreign_flag(name);
      if (flag == nullptr) return "";
    }
    value.clear();
  }
  const auto notice = judge_foreign_flag(*flag, name, value);
  if (!notice) throw LoadError(where + ": " + notice.error());
  return where + ": " + *notice;
}

}  // namespace

std::vector<ConfigEntry> parse_config(const std::string& text, const std::string& file) {
  std::vector<ConfigEntry> entries;
  size_t begin = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;  // a byte order mark
  for (int number = 1; begin <= text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view raw(text.data() + begin, end - begin);
    begin = end + 1;
    const std::string_view line = without_comment(raw), content = trimmed(line);
    if (content.empty() || content == "---") continue;
    const auto fail = [&](const char* why) {
      throw LoadError(file + ":" + std::to_string(number) + ": " + why);
    };
    if (line.front() == ' ' || line.front() == '\t') fail("indented; each flag has a line");
    const size_t colon = content.find_first_of(":=");
    if (colon == std::string_view::npos || trimmed(content.substr(0, colon)).empty())
      fail("write name: value");
    const std::string_view value = trimmed(content.substr(colon + 1));
    if (value.empty()) fail("a value is missing");
    if (value.front() == '[' || value.front() == '{' || value.front() == '|')
      fail("a value is one text; lists are separated by commas");
    entries.push_back({std::string(trimmed(content.substr(0, colon))), unquoted(value), number});
    if (entries.back().value.empty()) fail("the value is empty; leave the line out");
  }
  return entries;
}

std::vector<std::string> use_variables(CLI::App& command, const std::string& file) {
  std::map<CLI::Option*, std::string> values;
  std::vector<std::string> notices;
  if (!file.empty())
    for (const ConfigEntry& entry :
         parse_config(formats::read_text_file(file, kMaxConfigBytes), file)) {
      const std::string where = file + ":" + std::to_string(entry.line);
      if (find_foreign_flag(flag_name(entry.name)) != nullptr) {
        if (std::string notice = foreign_notice(entry, where); !notice.empty())
          notices.push_back(std::move(notice));
        continue;
      }
      CLI::Option& option = find_option(command, entry, file);
      if (values.contains(&option)) throw LoadError(where + ": " + entry.name + " is there twice");
      values[&option] = value_for(option, flag_name(entry.name), entry.value, where);
    }
  std::vector<std::string> known, words;  // with and without the prefix
  for (CLI::Option* option : command.get_options()) {
    if (!is_settable(*option)) continue;
    const std::string variable = variable_of(*option);
    known.push_back(variable);
    words.push_back(variable.substr(kPrefix.size()));
    const char* set = std::getenv(variable.c_str());
    // It would count as not set: no key, no certificate.
    if (set != nullptr && *set == 0)
      throw LoadError(variable + " is empty; unset it, or give it a value");
    // A variable of another name that the option has had all along (VLLM_API_KEY).
    const bool has_older =
        !option->get_envname().empty() && std::getenv(option->get_envname().c_str()) != nullptr;
    if (set != nullptr)
      values[option] = value_for(*option, "--" + option->get_lnames().front(), set, variable);
    else if (has_older)
      continue;
    const auto found = values.find(option);
    if (found == values.end()) continue;
    ::setenv(variable.c_str(), found->second.c_str(), 1);
    option->envname(variable);
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name = std::string(*entry).substr(0, std::string_view(*entry).find('='));
    if (!name.starts_with(kPrefix) || std::ranges::find(known, name) != known.end()) continue;
    if (const std::string near = nearest_word(name.substr(kPrefix.size()), words); !near.empty())
      notices.push_back(printable(name) + " is no variable of this command; did you mean " +
                        std::string(kPrefix) + near + "?");
  }
  return notices;
}

std::string config_argument(const std::vector<std::string>& arguments) {
  const auto named = [](const std::string& file, const char* by) {
    if (file.empty()) throw LoadError(std::string(by) + " is empty; is a variable not set?");
    return file;
  };
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    if (arguments[i] == "--config" && i + 1 < arguments.size())
      return named(arguments[i + 1], "--config");
    if (arguments[i].starts_with("--config=")) return named(arguments[i].substr(9), "--config");
  }
  const char* variable = std::getenv("QUIRE_CONFIG");
  return variable == nullptr ? "" : named(variable, "QUIRE_CONFIG");
}

}  // namespace quire::cli
