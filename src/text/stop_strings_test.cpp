#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

namespace quire::text {
namespace {

StopStrings watch(std::vector<std::string> stops, bool include = false) {
  return StopStrings(std::make_shared<StopSet>(std::move(stops)), include);
}

// The oracle: searches everything that is held for every stop string, after every delta.
class NaiveStops {
 public:
  NaiveStops(std::vector<std::string> stops, bool include)
      : stops_(std::move(stops)), include_(include) {}

  StopStrings::Output push(std::string_view delta) {
    if (done_) return {};
    held_ += delta;
    if (const auto match = first_match()) {
      done_ = true;
      held_.resize(include_ ? match->end : match->begin);
      return {.text = std::exchange(held_, {}), .matched = match->index};
    }
    std::string text = held_.substr(0, held_.size() - held_length());
    held_.erase(0, text.size());
    return {.text = std::move(text), .matched = std::nullopt};
  }
  std::string flush() {
    done_ = true;
    return std::exchange(held_, {});
  }

 private:
  struct Match {
    size_t begin, end, index;
  };

  std::optional<Match> first_match() const {
    std::optional<Match> best;
    for (size_t i = 0; i < stops_.size(); ++i) {
      const size_t begin = stops_[i].empty() ? std::string::npos : held_.find(stops_[i]);
      if (begin == std::string::npos) continue;
      const Match match{begin, begin + stops_[i].size(), i};
      if (!best || match.end < best->end || (match.end == best->end && begin < best->begin))
        best = match;
    }
    return best;
  }

  // Length of the longest end of the text that begins some stop string.
  size_t held_length() const {
    size_t longest = 0;
    for (const std::string& stop : stops_) {
      for (size_t n = 1; n < stop.size(); ++n)
        if (held_.ends_with(std::string_view(stop).substr(0, n))) longest = std::max(longest, n);
    }
    return longest;
  }

  std::vector<std::string> stops_;
  bool include_, done_ = false;
  std::string held_;
};

struct Watched {
  std::string text;
  std::optional<size_t> matched;
};

Watched run(std::vector<std::string> stops, std::string_view text, size_t step,
            bool include = false) {
  StopStrings watcher = watch(std::move(stops), include);
  Watched result;
  for (size_t i = 0; i < text.size(); i += step) {
    auto output = watcher.push(text.substr(i, step));
    result.text += output.text;
    if (output.matched) result.matched = output.matched;
  }
  result.text += watcher.flush();
  return result;
}

TEST(StopStrings, CutsBeforeOrAfterTheStopString) {
  for (size_t step : {1, 2, 3, 100}) {
    EXPECT_EQ(run({"END"}, "one END two", step).text, "one ");
    EXPECT_EQ(run({"END"}, "one END two", step, true).text, "one END");
    EXPECT_EQ(run({"x", "END"}, "one END two", step).matched, 1u);
  }
}

TEST(StopStrings, NeverEmitsWhatMayBecomeAStopString) {
  StopStrings watcher = watch({"\n\nUser:"});
  EXPECT_EQ(watcher.push("Hi\n").text, "Hi");
  EXPECT_EQ(watcher.push("\nUs").text, "");
  EXPECT_EQ(watcher.push("ing").text, "\n\nUsing");
  EXPECT_EQ(watcher.push("\n\nUser").text, "");
  const auto last = watcher.push(": x");
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.matched, 0u);
  EXPECT_EQ(watcher.push("more").text, "");
  EXPECT_EQ(watcher.flush(), "");
}

TEST(StopStrings, FlushGivesBackWhatWasHeld) {
  StopStrings watcher = watch({"abcabd"});
  EXPECT_EQ(watcher.push("abcab").text, "");
  EXPECT_EQ(watcher.flush(), "abcab");
}

TEST(StopStrings, FallsBackToAShorterBeginning) {
  // After "aab" fails, the last "a" may still begin it.
  EXPECT_EQ(run({"aab"}, "aaab!", 1).text, "a");
  EXPECT_EQ(run({"abab"}, "ababab", 1).text, "");
}

TEST(StopStrings, IgnoresEmptyOnesAndWorksWithNone) {
  EXPECT_EQ(run({""}, "text", 1).text, "text");
  EXPECT_FALSE(run({""}, "text", 1).matched);
  EXPECT_EQ(run({}, "text", 2).text, "text");
  StopStrings none(nullptr);
  EXPECT_EQ(none.push("text").text, "text");
  EXPECT_EQ(none.flush(), "");
}

TEST(StopStrings, TheFirstToBeCompleteWins) {
  for (size_t step : {1, 2, 4}) {
    EXPECT_EQ(run({"abcd", "bc"}, "abcd", step).matched, 1u);
    EXPECT_EQ(run({"abcd", "bc"}, "abcd", step).text, "a");
    EXPECT_EQ(run({"c", "abc"}, "abc", step).matched, 1u);
  }
}

TEST(StopStrings, ResultDoesNotDependOnTheCuts) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    auto word = [&](size_t most) {
      std::string s;
      for (size_t n = 1 + random() % most; n > 0; --n) s += "ab"[random() % 2];
      return s;
    };
    const std::vector<std::string> stops = {word(5), word(5)};
    const std::string text = word(12);
    const Watched whole = run(stops, text, text.size());
    for (size_t step = 1; step < 5; ++step) {
      const Watched cut = run(stops, text, step);
      ASSERT_EQ(cut.text, whole.text) << text << " " << stops[0] << " " << stops[1];
      ASSERT_EQ(cut.matched, whole.matched);
    }
  }
}

TEST(StopStrings, SaysWhatTheNaiveSearchSays) {
  std::mt19937 random(5);
  const auto word = [&](size_t most) {
    std::string s;
    for (size_t n = random() % (most + 1); n > 0; --n) s += "aab\xc3"[random() % 4];
    return s;
  };
  int matches = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stops(random() % 5);
    for (std::string& stop : stops) stop = word(8);
    const bool include = random() % 2 == 0;
    StopStrings watcher = watch(stops, include);
    NaiveStops oracle(stops, include);
    for (int piece = 0; piece < 12; ++piece) {
      const std::string delta = word(6);
      const auto output = watcher.push(delta);
      const auto expected = oracle.push(delta);
      ASSERT_EQ(output.text, expected.text) << testing::PrintToString(stops) << delta;
      ASSERT_EQ(output.matched, expected.matched) << testing::PrintToString(stops) << delta;
      matches += output.matched ? 1 : 0;
    }
    ASSERT_EQ(watcher.flush(), oracle.flush());
  }
  EXPECT_GT(matches, 3000);
  EXPECT_LT(matches, 17'000);
}

// Whose beginnings the whole text is, over and over. 128 answers of 2,000 tokens of 64 letters.
TEST(StopStrings, LongOnesOfOneLetterTakeLinearTime) {
  std::vector<std::string> stops;
  for (int i = 0; i < 15; ++i) stops.push_back(std::string(2000, '-') + "b" + std::to_string(i));
  stops.push_back(std::string(4095, '-') + "b");
  const std::clock_t start = std::clock();
  const auto set = std::make_shared<StopSet>(stops);
  for (int answer = 0; answer < 128; ++answer) {
    StopStrings watcher(set);
    size_t seen = 0;
    for (int i = 0; i < 2000; ++i) seen += watcher.push(std::string(64, '-')).text.size();
    ASSERT_EQ(seen, 2000u * 64 - 4095);
    ASSERT_EQ(watcher.push("b").matched, 15u);
  }
  // 16 MB; the naive search takes minutes.
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5.0);
}

TEST(StopSet, KnowsItsBytes) {
  const std::vector<std::string> stops = {std::string(4000, 'x'), "END"};
  EXPECT_GT(StopSet::bytes(stops), 4003 * 28u);
  EXPECT_LT(StopSet::bytes(stops), 4003 * 40u);
  EXPECT_LT(StopSet::bytes({}), 200u);
}

}  // namespace
}  // namespace quire::text
