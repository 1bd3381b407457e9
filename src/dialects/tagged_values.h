#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "dialects/reader.h"

namespace quire::dialects {

// The arguments of a call whose values stand between tags: JSON's braces, commas and quotes are
// put around them.
class TaggedArguments {
 public:
  explicit TaggedArguments(Reader& in) : in_(in) {}
  void open_key(std::string_view key);
  void close();  // the call's last argument is written

 private:
  Reader& in_;
  bool any_ = false;
};

struct ValueEnd {
  std::string_view closer;                      // "</parameter>"
  std::span<const std::string_view> followers;  // what may follow it, blanks aside
  // What ends a value whose closer is missing.
  std::span<const std::string_view> instead;
  bool trim_line_ends = false;  // one on each side belongs to the tags
};

// Reads a value up to its end and writes it as JSON: at once if it can only be a string, as the
// first of its types that fits otherwise. Without types it is a string.
Task<> tagged_value(Reader& in, const ValueEnd& end, std::string_view key);
// The same for a value that is JSON unless it is not valid.
Task<> tagged_json_value(Reader& in, const ValueEnd& end);

}  // namespace quire::dialects
