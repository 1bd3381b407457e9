#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire::cli {

// ForeignFlag::values of a switch whose values are all whole numbers that follow it.
inline constexpr std::string_view kNumbers = "#";

// A flag of vLLM or llama.cpp that Quire does not have.
struct ForeignFlag {
  std::string_view names;  // separated by spaces
  bool takes_value;
  // Values with which it changes nothing here, separated by spaces; "*": any, and none at all.
  // Empty: it is always refused.
  std::string_view harmless;
  std::string_view reason;  // why it changes nothing, or what to do instead
  // Of a switch: words that are its value if one of them follows it, or kNumbers.
  std::string_view values = {};
};

// All of them; the table is in foreign_flag_table.cpp.
std::span<const ForeignFlag> foreign_flags();

// The one of this name ("--swap-space"; underscores count as dashes), or null.
const ForeignFlag* find_foreign_flag(std::string name);

// What is said of a flag that changes nothing with this value (empty: none was given); `name` is
// how it was written. Error: a line that says why it is refused.
Result<std::string, std::string> judge_foreign_flag(const ForeignFlag& flag,
                                                    const std::string& name,
                                                    const std::string& value);

struct ScreenedArguments {
  std::vector<std::string> arguments;  // without the flags that change nothing
  std::vector<std::string> notices;    // a line for each of those
};

// Whether an option of the command takes the next argument as its value.
using TakesValue = std::function<bool(const std::string& name)>;

// Takes the foreign flags out of a command line. Error: a line that names the first one which would
// change something. Arguments after "--" and values of the command's own options are left alone;
// underscores in names count as dashes, and "--name=" is "--name" with an empty value.
Result<ScreenedArguments, std::string> screen_foreign_flags(
    const std::vector<std::string>& arguments, const TakesValue& takes_value);

// The candidate that a mistyped word most likely means: at most a third of its letters (and not
// more than three) are wrong, missing, superfluous or swapped. Empty if there is none.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace quire::cli
