#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace quire::text {
namespace {

struct Match {
  size_t begin, end, index;
};

std::optional<Match> first_match(std::string_view text, const std::vector<std::string>& stops) {
  std::optional<Match> best;
  for (size_t i = 0; i < stops.size(); ++i) {
    const size_t begin = stops[i].empty() ? std::string_view::npos : text.find(stops[i]);
    if (begin == std::string_view::npos) continue;
    const Match match{begin, begin + stops[i].size(), i};
    if (!best || match.end < best->end || (match.end == best->end && begin < best->begin)) {
      best = match;
    }
  }
  return best;
}

// Length of the longest end of `text` that begins some stop string.
size_t held_length(std::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    if (stop.empty()) continue;
    for (size_t n = std::min(stop.size() - 1, text.size()); n > longest; --n) {
      if (text.ends_with(std::string_view(stop).substr(0, n))) {
        longest = n;
        break;
      }
    }
  }
  return longest;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> stops, bool include)
    : stops_(std::move(stops)), include_(include) {}

StopStrings::Output StopStrings::push(std::string_view delta) {
  if (done_) return {};
  held_ += delta;
  if (const auto match = first_match(held_, stops_)) {
    done_ = true;
    held_.resize(include_ ? match->end : match->begin);
    return {.text = std::exchange(held_, {}), .matched = match->index};
  }
  const size_t held = held_length(held_, stops_);
  std::string text = held_.substr(0, held_.size() - held);
  held_.erase(0, text.size());
  return {.text = std::move(text), .matched = std::nullopt};
}

std::string StopStrings::flush() {
  done_ = true;
  return std::exchange(held_, {});
}

}  // namespace quire::text
