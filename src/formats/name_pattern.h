#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace quire::formats {

// A pattern that names of modules are compared with, in the part of Python's regular expressions
// that configs use: literals, ., classes, \d \w \s, groups, |, * + ? {m,n}, ^ $, lookaheads.
// Matching takes steps in proportion to pattern and name, not to their combinations: both come from
// files. No library does that here: RE2 has no lookaheads, which configs use to say what stays as
// it is; std::regex tries combinations, and its depth of calls grows with the name.
class NamePattern {
 public:
  struct Node;

  // Throws std::invalid_argument that says what is not understood.
  explicit NamePattern(std::string_view pattern);
  // As re.match: the name must begin so. Throws std::invalid_argument if that takes too long.
  bool begins(std::string_view name) const;

 private:
  std::shared_ptr<const Node> root_;
};

}  // namespace quire::formats
