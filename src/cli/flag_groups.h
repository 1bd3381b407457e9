#pragma once
#include <CLI/CLI.hpp>
#include <span>
#include <string_view>

namespace quire::cli {

// Under which heading of --help a flag stands.
struct FlagGroup {
  std::string_view heading;
  std::string_view flags;  // separated by spaces
};

std::span<const FlagGroup> flag_groups();

// Puts the command's flags under their headings; those without one stay under "Options".
void group_flags(CLI::App& command);

}  // namespace quire::cli
