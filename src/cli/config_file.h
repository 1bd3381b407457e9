#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace quire::cli {

struct ConfigEntry {
  std::string name, value;
  int line = 0;
};

// The entries of a file with flags: a line each, "name: value" or "name = value", with the flags'
// names; "#" begins a comment, quotes may stand around a value. Throws LoadError naming file and
// line.
std::vector<ConfigEntry> parse_config(const std::string& text, const std::string& file);

// Where flags come from that the command line does not have, for one command: variables
// QUIRE_MAX_MODEL_LEN for --max-model-len, and what `file` says (empty: there is none), in this
// order. To be called before the command line is parsed. Returns a line for each variable that
// looks like a mistyped one, and for each flag of another program in the file that changes nothing
// here. Throws LoadError for a file that cannot be read, for names and values that no flag has, for
// flags of other programs that would change something, and for values that are empty: to leave a
// key out, say, is another thing.
std::vector<std::string> use_variables(CLI::App& command, const std::string& file);

// The value of --config among the arguments, or of QUIRE_CONFIG; empty if there is neither. Throws
// LoadError if it is there and empty.
std::string config_argument(const std::vector<std::string>& arguments);

}  // namespace quire::cli
