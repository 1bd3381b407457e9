#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace quire::cli {

// What a command line gets wrong about commands, as a line to print: "there is no command `sevre`;
// did you mean `serve`?". Empty if its commands exist.
std::string unknown_command(const CLI::App& app, const std::vector<std::string>& arguments);

// What a parse has left over, in the order in which it was typed: "not expected here: --colour red;
// see --help".
std::string extras_text(const CLI::App& app);

// Whether this is an option of the command that these arguments name, and takes the next one as its
// value.
bool takes_value(const CLI::App& app, const std::vector<std::string>& arguments,
                 const std::string& option);

// "did you mean --max-model-len?" for the first flag that its command does not have; empty if there
// is no such flag, or none near it.
std::string flag_suggestion(const CLI::App& app, const std::vector<std::string>& arguments);

}  // namespace quire::cli
