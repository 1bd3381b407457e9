#include "cli/usage.h"

#include "base/printable.h"
#include "cli/foreign_flags.h"

namespace quire::cli {
namespace {

const CLI::App* find_subcommand(const CLI::App& app, const std::string& name) {
  const auto found =
      app.get_subcommands([&](const CLI::App* inner) { return inner->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

struct Found {
  const CLI::App* command;
  size_t used;  // words that name it
};

// The innermost command that the first words name.
Found find_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  Found found{&app, 0};
  while (found.used < arguments.size()) {
    const CLI::App* inner = find_subcommand(*found.command, arguments[found.used]);
    if (inner == nullptr) break;
    found = {inner, found.used + 1};
  }
  return found;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* inner : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(inner->get_name());
  return names;
}

std::vector<std::string> flag_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

}  // namespace

std::string unknown_command(const CLI::App& app, const std::vector<std::string>& arguments) {
  const Found found = find_command(app, arguments);
  const std::vector<std::string> names = command_names(*found.command);
  if (names.empty() || found.used == arguments.size()) return "";
  const std::string& word = arguments[found.used];
  if (word.starts_with('-')) return "";
  const std::string near = nearest_word(word, names);
  std::string line = "there is no command `" + word + "`";
  if (!near.empty()) return line + "; did you mean `" + near + "`?";
  line += "; there are";
  for (size_t i = 0; i < names.size(); ++i) line += (i == 0 ? " " : ", ") + names[i];
  return line;
}

std::string extras_text(const CLI::App& app) {
  std::string line = "not expected here:";
  for (const std::string& argument : app.remaining(true)) line += " " + printable(argument, 200);
  return line + "; see --help";
}

bool takes_value(const CLI::App& app, const std::vector<std::string>& arguments,
                 const std::string& option) {
  if (!option.starts_with('-')) return false;
  const CLI::Option* found = find_command(app, arguments).command->get_option_no_throw(option);
  return found != nullptr && found->get_expected_min() > 0 && found->get_type_size_min() > 0;
}

std::string flag_suggestion(const CLI::App& app, const std::vector<std::string>& arguments) {
  const Found found = find_command(app, arguments);
  for (size_t i = found.used; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string name = arguments[i].substr(0, arguments[i].find('='));
    if (!name.starts_with("--") || found.command->get_option_no_throw(name) != nullptr) continue;
    const std::string near = nearest_word(name, flag_names(*found.command));
    return near.empty() ? "" : "did you mean " + near + "?";
  }
  return "";
}

}  // namespace quire::cli
