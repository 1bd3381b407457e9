#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::text {

// Watches one sequence's text for its stop strings. Text that may be the beginning of a stop
// string is held back until it is certain, so a client never sees any part of one.
class StopStrings {
 public:
  struct Output {
    std::string text;               // certain now
    std::optional<size_t> matched;  // index of the stop string that ended the sequence
  };

  // Empty stop strings are ignored. With `include` the matched string itself is emitted too.
  explicit StopStrings(std::vector<std::string> stops, bool include = false);

  // The stop string that is complete first wins, however the text was cut into deltas; of those
  // that end at the same place, the one that begins first. After a match everything is dropped.
  Output push(std::string_view delta);
  // What was held back, when no text will follow.
  std::string flush();

 private:
  std::vector<std::string> stops_;
  bool include_;
  bool done_ = false;
  std::string held_;  // shorter than the longest stop string
};

}  // namespace quire::text
