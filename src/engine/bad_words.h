#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace quire::engine {

// Token sequences of two tokens or more that a request must not produce: the last token of one is
// banned where the others have just been produced. Looking them up takes time in the length of the
// longest one, not in their number.
class BadWords {
 public:
  explicit BadWords(const std::vector<std::vector<int32_t>>& sequences);

  // Appends the tokens that must not follow `produced`.
  void ban(std::span<const int32_t> produced, std::vector<int32_t>& banned) const;
  // The same where one more token follows `produced` that is not known yet: appends pairs of that
  // token and what must not follow it.
  void ban_after_pending(std::span<const int32_t> produced,
                         std::vector<std::pair<int32_t, int32_t>>& banned_after) const;

 private:
  struct Entry {
    std::vector<int32_t> backwards;  // what must have been produced, the latest token first
    int32_t pending = -1;            // then this one
    int32_t last = -1;               // must not follow
    auto operator<=>(const Entry&) const = default;
  };

  // Sorted: entries whose `backwards` begin alike lie side by side.
  std::vector<Entry> after_known_, after_pending_;
};

}  // namespace quire::engine
