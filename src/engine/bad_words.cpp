#include "engine/bad_words.h"

#include <algorithm>

#include "base/check.h"

namespace quire::engine {
namespace {

// Calls f with the entries whose `backwards` are the end of `produced`, read from its end.
template <class Entry, class F>
void for_each_match(std::span<const Entry> entries, std::span<const int32_t> produced, const F& f) {
  for (size_t depth = 0; !entries.empty(); ++depth) {
    const auto at_depth = [depth](const Entry& entry) { return entry.backwards[depth]; };
    // In the order of the entries those that end here come before those that go on.
    while (!entries.empty() && entries.front().backwards.size() == depth) {
      f(entries.front());
      entries = entries.subspan(1);
    }
    if (depth == produced.size()) return;
    const int32_t token = produced[produced.size() - 1 - depth];
    const auto same = std::ranges::equal_range(entries, token, {}, at_depth);
    entries = {same.begin(), same.end()};
  }
}

}  // namespace

BadWords::BadWords(const std::vector<std::vector<int32_t>>& sequences) {
  for (const auto& sequence : sequences) {
    QUIRE_CHECK(sequence.size() >= 2) << sequence.size();
    Entry entry{{sequence.rbegin() + 1, sequence.rend()}, -1, sequence.back()};
    after_known_.push_back(entry);
    entry.pending = entry.backwards.front();
    entry.backwards.erase(entry.backwards.begin());
    after_pending_.push_back(std::move(entry));
  }
  std::ranges::sort(after_known_);
  std::ranges::sort(after_pending_);
}

void BadWords::ban(std::span<const int32_t> produced, std::vector<int32_t>& banned) const {
  for_each_match(std::span(after_known_), produced,
                 [&](const Entry& entry) { banned.push_back(entry.last); });
}

void BadWords::ban_after_pending(std::span<const int32_t> produced,
                                 std::vector<std::pair<int32_t, int32_t>>& banned_after) const {
  for_each_match(std::span(after_pending_), produced,
                 [&](const Entry& entry) { banned_after.emplace_back(entry.pending, entry.last); });
}

}  // namespace quire::engine
