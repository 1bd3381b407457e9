#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace quire::dialects {

// The JSON types that a schema admits for a value.
struct ValueTypes {
  bool null = false, integer = false, number = false, boolean = false;
  bool object = false, array = false, string = false;

  bool only_string() const {
    return string && !(null || integer || number || boolean || object || array);
  }
};

// The tools that a request offers: what a call may name, and the types of its arguments.
class ToolSet {
 public:
  // Offers everything: calls may have any name, and values without syntax of their own are strings.
  ToolSet() = default;
  // OpenAI's list of tools; functions without the object around them are taken, too. Schemas that
  // refer to each other so often that looking through them would take long are looked through in
  // part: the arguments that are left count as strings.
  static Result<ToolSet, std::string> parse(const json::value& tools);

  bool offers(std::string_view name) const;
  // Of an argument; nothing if the tool or the argument has no schema.
  std::optional<ValueTypes> types(std::string_view tool, std::string_view argument) const;
  // What the set holds, about.
  size_t bytes() const;

 private:
  struct Less {
    using is_transparent = void;
    bool operator()(std::string_view a, std::string_view b) const { return a < b; }
  };
  using Arguments = std::map<std::string, ValueTypes, Less>;
  std::optional<std::map<std::string, Arguments, Less>> tools_;  // nothing: any
};

}  // namespace quire::dialects
