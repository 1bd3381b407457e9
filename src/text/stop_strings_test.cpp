#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace quire::text {
namespace {

struct Watched {
  std::string text;
  std::optional<size_t> matched;
};

Watched run(std::vector<std::string> stops, std::string_view text, size_t step,
            bool include = false) {
  StopStrings watcher(std::move(stops), include);
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
  StopStrings watcher({"\n\nUser:"});
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
  StopStrings watcher({"abcabd"});
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

}  // namespace
}  // namespace quire::text
