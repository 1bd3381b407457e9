#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/clock.h"
#include "base/first_failure.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/printable.h"
#include "base/result.h"

namespace quire {
namespace {

TEST(ThreadPool, RunsEveryIndexOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 2000; ++round) {
      const int n = round % 37;
      std::vector<std::atomic<int>> hits(n);
      pool.parallel_for(n, [&](int64_t i) { hits[i].fetch_add(1, std::memory_order_relaxed); });
      for (const auto& h : hits) ASSERT_EQ(h.load(), 1) << threads << " threads, round " << round;
    }
  }
}

TEST(ThreadPool, WakesSleepers) {
  ThreadPool pool(4);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // past the spin: workers sleep
    std::atomic<int> sum{0};
    pool.parallel_for(100, [&](int64_t i) { sum += static_cast<int>(i); });
    ASSERT_EQ(sum.load(), 4950);
  }
}

// Loops in bursts, with and without the promise of more, and pools that share the cores.
TEST(ThreadPool, SleepsAndWakesInEveryPattern) {
  ThreadPool pool(3), other(8);  // more threads than this machine has, mostly
  for (int round = 0; round < 60; ++round) {
    std::optional<ThreadPool::Busy> busy;
    if (round % 2) busy.emplace(pool);
    for (int loop = 0; loop < 30; ++loop) {
      std::atomic<int> sum{0};
      pool.parallel_for(50, [&](int64_t i) { sum += static_cast<int>(i); });
      ASSERT_EQ(sum.load(), 1225);
      other.parallel_for(9, [&](int64_t i) { sum += static_cast<int>(i); });
      ASSERT_EQ(sum.load(), 1225 + 36);
    }
    if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(round * 50));
  }
}

// A worker that finds no core in time must not be waited for as long as a time slice, 200 times.
TEST(ThreadPool, MoreThreadsThanCoresDoNotCollapse) {
  ThreadPool pool(4 * usable_processors());
  const ThreadPool::Busy busy(pool);
  const TimePoint start = Clock::now();
  std::atomic<int64_t> sum{0};
  for (int loop = 0; loop < 200; ++loop) pool.parallel_for(64, [&](int64_t i) { sum += i; });
  EXPECT_EQ(sum.load(), 200 * 2016);
  EXPECT_LT(seconds_since(start), 120.0);  // some milliseconds; only a hang takes longer
}

#if defined(__linux__)
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// A loaded machine may keep a worker from its way to sleep for long, so the test waits for silence
// instead of asking for it at once; a pool that watches for work for ever never becomes silent.
TEST(ThreadPool, IdleUsesNoCpu) {
  ThreadPool pool(4);
  for (const bool announced : {false, true}) {
    std::optional<ThreadPool::Busy> busy;
    if (announced) busy.emplace(pool);  // even a forgotten one ends the watch after a while
    pool.parallel_for(100, [](int64_t) {});
    bool silent = false;
    for (int window = 0; window < 600 && !silent; ++window) {
      const double before = cpu_seconds();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      silent = cpu_seconds() - before < 0.01;
    }
    EXPECT_TRUE(silent) << "workers still watch for work after a minute";
  }
}
#endif

TEST(ThreadPool, DenormalsAreZeroInsideAndRestoredOutside) {
  ThreadPool pool(2);
  volatile float tiny = std::numeric_limits<float>::denorm_min();
  std::atomic<int> nonzero{0};
  pool.parallel_for(64, [&](int64_t) { nonzero += (tiny * 1.0f != 0.0f); });
  EXPECT_EQ(nonzero.load(), 0);
  EXPECT_NE(tiny * 1.0f, 0.0f);
}

TEST(FirstFailure, IsThrownBehindTheLoopAndEndsIt) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    FirstFailure failure;
    std::atomic<int> done = 0;
    pool.parallel_for(1000, [&](int64_t i) {
      failure.note([&] {
        if (i >= 10) throw std::runtime_error("ten");
        ++done;
      });
    });
    EXPECT_LE(done, 10);
    EXPECT_THROW(failure.rethrow(), std::runtime_error);
    int later = 0;
    failure.note([&] { ++later; });
    EXPECT_EQ(later, 0);
  }
  FirstFailure none;
  int done = 0;
  none.note([&] { ++done; });
  EXPECT_EQ(done, 1);
  EXPECT_NO_THROW(none.rethrow());
}

TEST(Result, HoldsValueOrError) {
  Result<std::string, std::string> value(std::string("v"));
  Result<std::string, std::string> error(Err{std::string("e")});
  EXPECT_TRUE(value.ok());
  EXPECT_EQ(*value, "v");
  EXPECT_FALSE(error.ok());
  EXPECT_EQ(error.error(), "e");
  Result<std::unique_ptr<int>, int> move_only(std::make_unique<int>(3));
  EXPECT_EQ(*std::move(move_only).value(), 3);
  EXPECT_DEATH((void)value.error(), "check failed");
}

TEST(Json, RefusesBadDocuments) {
  for (const char* bad :
       {"", "{", "[1,", "{\"a\":1}x", "1e400", "-1e999", "\"\xff\"", "nul", "{a:1}", "[1,]"}) {
    EXPECT_FALSE(parse_json(bad).ok()) << bad;
  }
  EXPECT_FALSE(parse_json(std::string(200, '[') + std::string(200, ']')).ok());
  EXPECT_TRUE(parse_json(std::string(100, '[') + std::string(100, ']')).ok());
  EXPECT_FALSE(parse_json("[1,2,3]", {.max_bytes = 4}).ok());
}

std::string object_of(size_t members) {
  std::string text = "{";
  for (size_t i = 0; i < members; ++i)
    text += (i > 0 ? "," : "") + ("\"a\\\":{[" + std::to_string(i) + "\":") + R"("b:c,d:\\")";
  return text + "}";
}

TEST(Json, ObjectsHaveOnlySoManyMembers) {
  const JsonLimits limits{.max_members = 100};
  const std::string full = object_of(100), over = object_of(101);
  EXPECT_TRUE(parse_json(full, limits).ok());
  EXPECT_TRUE(parse_json("[" + full + "," + full + "]", limits).ok());
  EXPECT_TRUE(parse_json("{\"a\":" + full + ",\"b\":[" + full + "],\"c\":1}", limits).ok());
  for (const std::string& bad : {over, "[[" + over + "]]", "{\"a\":{\"b\":" + over + "}}"}) {
    const auto value = parse_json(bad, limits);
    ASSERT_FALSE(value.ok());
    EXPECT_EQ(value.error(), "a JSON object has more than 100 members");
  }
  EXPECT_TRUE(parse_json(object_of(40'000)).ok());  // as an index of weights has
}

TEST(Json, ReadingEndsWithItsBudget) {
  const std::string text = "[" + std::string(1 << 20, ' ') + "]";
  WorkBudget enough(std::chrono::hours(1)), none(std::chrono::nanoseconds(0)), gone;
  gone.cancelled = true;
  EXPECT_TRUE(parse_json(text, {.budget = &enough}).ok());
  EXPECT_LT(enough.left_ns, enough.limit_ns);
  for (WorkBudget* budget : {&none, &gone}) {
    const auto value = parse_json(text, {.budget = budget});
    ASSERT_FALSE(value.ok());
    EXPECT_NE(value.error().find("processor time"), std::string::npos);
  }
}

TEST(Json, PiecesOfALongDocumentMakeOne) {
  const std::string list = "[" + std::string(200'000, ' ') + "1]";
  const auto value = parse_json(list);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(*value, json::value({1}));
  EXPECT_TRUE(parse_json(list + std::string(200'000, '\n')).ok());
  EXPECT_FALSE(parse_json(list + std::string(200'000, '\n') + "1").ok());
  const auto cut = parse_json("[" + std::string(200'000, ' '));
  ASSERT_FALSE(cut.ok());
  EXPECT_NE(cut.error().find("at byte 200001"), std::string::npos) << cut.error();
}

TEST(Json, NamesLoneSurrogates) {
  for (const char* bad : {R"("\ud800")", R"("\udc00")", R"("\ud800x")", R"(["\ud800\u0041"])",
                          R"({"a": "\ud800\n"})"}) {
    const auto value = parse_json(bad);
    ASSERT_FALSE(value.ok()) << bad;
    EXPECT_NE(value.error().find("lone surrogate"), std::string::npos) << value.error();
  }
  const auto pair = parse_json(R"("\ud83d\ude42")");
  ASSERT_TRUE(pair.ok()) << pair.error();
  EXPECT_EQ(*pair, "\xF0\x9F\x99\x82");
  const auto digits = parse_json(R"("\ud8")");
  EXPECT_EQ(digits.error().find("surrogate"), std::string::npos) << digits.error();
}

TEST(Json, DumpsNumbersThatReadBack) {
  const std::string text =
      R"({"a":[1,-2,18446744073709551615,0.1,1.0,1e+300],"b":"q\"\\\n\u0001é","c":null,"d":true})";
  const auto value = parse_json(text);
  ASSERT_TRUE(value.ok()) << value.error();
  EXPECT_EQ(dump_json(*value), text);
  EXPECT_EQ(dump_json(json::value(INFINITY)), "null");
}

TEST(Json, SaysThatTextIsNotUtf8) {
  for (const char* text : {"{\"a\": \"\xff\"}", "[\"abcde\xe2\x82\"]", "[123456\xc3(]",
                           "[\"12345\xed\xa0\x80\"]", "[\"12345\xc0\xaf\"]"}) {
    const auto refused = parse_json(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error(), "invalid JSON at byte 7: it is not UTF-8") << text;
  }
  // What comes first is named.
  EXPECT_EQ(parse_json("[1,]\xff").error().find("UTF-8"), std::string::npos);
}

TEST(Json, ReplacesInvalidUtf8) {
  std::string out;
  append_json_string(out, "a\xff\xe2\x82z\xed\xa0\x80");
  EXPECT_EQ(out, "\"a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

TEST(Printable, LeavesTextAloneAndEscapesWhatMovesTheCursor) {
  EXPECT_EQ(printable("plain, ünïcödé 🙂 and C:\\dir"), "plain, ünïcödé 🙂 and C:\\dir");
  EXPECT_EQ(printable("\x1b[2J\r\n\t"), "\\x1b[2J\\r\\n\\t");
  EXPECT_EQ(printable(std::string_view("\0\x7f", 2)), "\\x00\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // CSI in one character
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b\xe2\x80\xa8"),
            "a\\u202eb\\u2028");
}

TEST(Printable, EscapesInvalidUtf8ByteByByte) {
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b");                    // an overlong ESC
  EXPECT_EQ(printable("\xed\xa0\x80!"), "\\xed\\xa0\\x80!");         // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
}

TEST(Printable, CutsLongTextBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdef", 5), "abcde...");
  EXPECT_EQ(printable("ab\xc3\xbc", 3), "ab...");
  EXPECT_EQ(printable("", 0), "");
}

}  // namespace
}  // namespace quire
