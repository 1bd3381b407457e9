// Stop strings against a naive oracle that sees the whole text: what is emitted, which one matched,
// and that no more is held back than must be. Long ones, which an oracle is too slow for, take
// linear time.

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "choices.h"
#include "cpu_timer.h"
#include "text/stop_strings.h"

namespace {

using quire::text::StopSet;
using quire::text::StopStrings;

struct Oracle {
  size_t end_of_text;  // of what the client sees when everything has arrived
  size_t certain;      // of what it sees so far
  std::optional<size_t> matched;
};

// Of `text`, tries every place where a stop string may end, and at each the longest one first.
Oracle look(std::string_view text, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (stops[i].empty() || !text.substr(0, end).ends_with(stops[i])) continue;
      if (!best || stops[i].size() > stops[*best].size()) best = i;
    }
    if (best) {
      const size_t cut = include ? end : end - stops[*best].size();
      return {cut, cut, best};
    }
  }
  size_t held = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size(); ++n) {
      if (text.ends_with(std::string_view(stop).substr(0, n))) held = std::max(held, n);
    }
  }
  return {text.size(), text.size() - held, std::nullopt};
}

// A tiny alphabet makes overlaps; the bytes as they are make everything else.
std::string word(quire::fuzz::Choices& choices, size_t longest, bool tiny) {
  std::string text = choices.text(longest);
  if (tiny) std::ranges::transform(text, text.begin(), [](char c) { return "ab"[c & 1]; });
  return text;
}

// `part` over and over, with another word behind it.
std::string long_word(quire::fuzz::Choices& choices, const std::string& part, size_t longest) {
  const std::string end = word(choices, 4, false);
  const auto length = longest - choices.in_range<size_t>(0, longest);
  std::string text;
  while (!part.empty() && text.size() < length) text += part;
  return text + end;
}

// As many and as long as a request may have, alike but for their ends, and 64 KiB of such a text.
void look_at_time(quire::fuzz::Choices& choices) {
  const std::string part = word(choices, 4, true);
  std::vector<std::string> stops(16 - choices.in_range<size_t>(0, 15));
  for (std::string& stop : stops) stop = long_word(choices, part, 4088);
  const std::string text = long_word(choices, part, 64u << 10);
  const auto piece = choices.in_range<size_t>(8, 256);
  const quire::fuzz::CpuTimer timer;
  StopStrings watcher(std::make_shared<StopSet>(stops));
  size_t seen = 0;
  for (size_t at = 0; at < text.size(); at += piece) {
    const auto output = watcher.push(std::string_view(text).substr(at, piece));
    seen += output.text.size();
    if (output.matched) break;
  }
  seen += watcher.flush().size();
  // Some 20 ms with the address sanitizer; a search that begins anew with every piece takes
  // seconds.
  QUIRE_CHECK(timer.milliseconds() < 500) << timer.milliseconds() << " ms";
  QUIRE_CHECK(seen <= text.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  quire::fuzz::Choices choices(data, size);
  if (choices.in_range<int>(0, 7) == 7) {
    look_at_time(choices);
    return 0;
  }
  const bool include = choices.flip(), tiny = choices.flip();
  std::vector<std::string> stops(choices.in_range<size_t>(0, 4));
  for (std::string& stop : stops) stop = word(choices, 8, tiny);

  StopStrings watcher(std::make_shared<StopSet>(stops), include);
  std::string text, seen;
  std::optional<size_t> matched;
  for (int piece = 0; piece < 64 && choices.bytes_left() > 0; ++piece) {
    const std::string delta = word(choices, 12, tiny);
    text += delta;
    const auto output = watcher.push(delta);
    seen += output.text;
    if (output.matched) {
      QUIRE_CHECK(!matched) << "a second match";
      matched = output.matched;
    }
    const Oracle expected = look(text, stops, include);
    QUIRE_CHECK(matched.has_value() == expected.matched.has_value()) << text;
    // Of two equal stop strings either may be named.
    QUIRE_CHECK(!matched || stops[*matched] == stops[*expected.matched]) << text;
    QUIRE_CHECK(seen == text.substr(0, expected.certain)) << "'" << seen << "' of '" << text << "'";
  }
  seen += watcher.flush();
  QUIRE_CHECK(seen == text.substr(0, look(text, stops, include).end_of_text)) << text;
  return 0;
}
