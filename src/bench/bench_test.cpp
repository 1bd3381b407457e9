#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "base/error.h"
#include "base/source_dir.h"
#include "bench/dataset.h"
#include "bench/random.h"
#include "bench/serve/client.h"
#include "bench/serve/report.h"
#include "bench/serve/stream.h"
#include "bench/stats.h"

namespace quire::bench {
namespace {

// The figures of numpy.percentile, mean and std for [1, 2, 3, 4] and [15, 20, 35, 40, 50].
TEST(BenchStats, AreNumpys) {
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 50), 2.5);
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 25), 1.75);
  EXPECT_DOUBLE_EQ(percentile({50, 15, 40, 20, 35}, 99), 49.6);
  EXPECT_DOUBLE_EQ(percentile({50, 15, 40, 20, 35}, 0), 15);
  EXPECT_DOUBLE_EQ(percentile({50, 15, 40, 20, 35}, 100), 50);
  EXPECT_DOUBLE_EQ(percentile({}, 50), 0);
  const std::vector<double> values = {1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(mean(values), 2.5);
  EXPECT_DOUBLE_EQ(standard_deviation(values), std::sqrt(1.25));
}

// A stream's tokens from `first` on, `gap` seconds apart.
std::vector<double> stream_of(size_t count, double first, double gap) {
  std::vector<double> times;
  for (size_t i = 0; i < count; ++i) times.push_back(first + static_cast<double>(i) * gap);
  return times;
}

using Streams = std::vector<std::vector<double>>;

TEST(DecodeRate, IsThatOfTheTimeInWhichAllStreamsDecode) {
  // Alone 100 tokens a second, ten times slower beside another stream, which begins at 1 s.
  std::vector<double> early = stream_of(100, 0, 0.01);
  for (const double time : stream_of(20, 1.001, 0.1)) early.push_back(time);
  EXPECT_NEAR(*decode_rate(Streams{early}), 119 / 2.901, 1e-9);
  EXPECT_NEAR(*decode_rate(Streams{early, stream_of(40, 1, 0.1)}), 20, 1e-9);
  // What the second one does alone afterwards does not count.
  std::vector<double> late = stream_of(20, 1, 0.1);
  for (const double time : stream_of(1000, 3, 1e-5)) late.push_back(time);
  EXPECT_NEAR(*decode_rate(Streams{early, late}), 20, 1e-9);
}

TEST(DecodeRate, DoesNotDependOnTheOrderOfAStepsTokens) {
  Streams times;
  for (int i = 0; i < 8; ++i) times.push_back(stream_of(33, 0.5 + 1e-6 * i, 0.002));
  EXPECT_NEAR(*decode_rate(times), 8 / 0.002, 1e-6);
  std::reverse(times.begin(), times.end());
  EXPECT_NEAR(*decode_rate(times), 8 / 0.002, 1e-6);
}

TEST(DecodeRate, IsNoneForARunTooShortToTell) {
  // The first stream is through when the last one begins.
  EXPECT_FALSE(decode_rate(Streams{stream_of(33, 0, 1e-3), stream_of(33, 0.04, 1e-3)}));
  // Its last token comes with the other's first: some microseconds tell of no rate.
  EXPECT_FALSE(decode_rate(Streams{stream_of(33, 0, 1e-3), stream_of(33, 0.032 - 1e-6, 1e-3)}));
  EXPECT_FALSE(decode_rate(Streams{stream_of(kFewestGaps, 0, 1e-3)}));
  EXPECT_TRUE(decode_rate(Streams{stream_of(kFewestGaps + 1, 0, 1e-3)}));
  EXPECT_FALSE(decode_rate(Streams{{}}));
}

// Mean and variance of a gamma distribution of scale 1 are its shape.
TEST(TurnOrder, NoWayIsAlwaysFirstOrBehindTheSameOther) {
  EXPECT_EQ(turn_order(2, 0), (std::vector<size_t>{0, 1}));
  for (const size_t count : {2, 3, 6}) {
    std::vector<int> first(count);
    std::set<std::pair<size_t, size_t>> followed;
    for (int64_t round = 0; round < 2 * static_cast<int64_t>(count); ++round) {
      const std::vector<size_t> order = turn_order(count, round);
      EXPECT_EQ(std::set<size_t>(order.begin(), order.end()).size(), count);
      EXPECT_EQ(order.size(), count);
      ++first[order.front()];
      for (size_t i = 1; i < count; ++i) followed.insert({order[i - 1], order[i]});
    }
    for (const int times : first) EXPECT_EQ(times, 2) << count;
    for (size_t way = 0; way < count; ++way)  // behind both of its neighbours
      EXPECT_TRUE(followed.contains({way, (way + 1) % count}) &&
                  followed.contains({(way + 1) % count, way}));
  }
}

TEST(Random, GammaHasItsMoments) {
  for (const double shape : {0.5, 1.0, 4.0}) {
    Random random(7, 0);
    std::vector<double> values(40000);
    for (double& value : values) value = random.gamma(shape);
    // Five standard errors of the mean; the variance's is wider.
    EXPECT_NEAR(mean(values), shape, 5 * std::sqrt(shape / 40000)) << shape;
    const double deviation = standard_deviation(values);
    EXPECT_NEAR(deviation * deviation, shape, 0.1 * shape) << shape;
  }
}

class Dataset : public ::testing::Test {
 protected:
  std::shared_ptr<const text::Tokenizer> tokenizer =
      text::Tokenizer::load(source_dir() + "/models/quire-demo");

  // Every prompt reads back as the ids it claims.
  void check(const std::vector<Prompt>& prompts) {
    for (const Prompt& prompt : prompts)
      EXPECT_EQ(*tokenizer->encode(prompt.text, false), prompt.ids);
  }
};

TEST_F(Dataset, RandomPromptsHaveTheLengthAskedFor) {
  const auto prompts =
      make_dataset(*tokenizer, {.num_prompts = 40, .random_input_len = 57, .random_output_len = 9});
  ASSERT_EQ(prompts.size(), 40u);
  check(prompts);
  std::set<std::string> texts;
  for (const Prompt& prompt : prompts) {
    EXPECT_EQ(prompt.ids.size(), 57u);
    EXPECT_EQ(prompt.output_len, 9);
    texts.insert(prompt.text.substr(0, 20));
  }
  EXPECT_EQ(texts.size(), 40u) << "prompts must not begin alike";
}

TEST_F(Dataset, TheSeedDecides) {
  DatasetOptions options{.num_prompts = 3, .random_input_len = 20};
  const auto first = make_dataset(*tokenizer, options), again = make_dataset(*tokenizer, options);
  options.seed = 1;
  const auto other = make_dataset(*tokenizer, options);
  EXPECT_EQ(first[2].text, again[2].text);
  EXPECT_NE(first[2].text, other[2].text);
}

TEST_F(Dataset, LengthsVaryByTheRatio) {
  const auto prompts = make_dataset(*tokenizer, {.num_prompts = 60,
                                                 .random_input_len = 40,
                                                 .random_output_len = 10,
                                                 .random_prefix_len = 5,
                                                 .random_range_ratio = 0.5});
  check(prompts);
  std::set<size_t> lengths;
  for (const Prompt& prompt : prompts) {
    EXPECT_GE(prompt.ids.size(), 25u);
    EXPECT_LE(prompt.ids.size(), 65u);
    EXPECT_TRUE(std::equal(prompt.ids.begin(), prompt.ids.begin() + 4, prompts[0].ids.begin()));
    lengths.insert(prompt.ids.size());
  }
  EXPECT_GT(lengths.size(), 10u);
}

TEST_F(Dataset, PrefixesRepeat) {
  const auto prompts = make_dataset(*tokenizer, {.name = "prefix_repetition",
                                                 .num_prompts = 12,
                                                 .prefix_len = 32,
                                                 .suffix_len = 8,
                                                 .num_prefixes = 3});
  check(prompts);
  std::map<std::vector<int32_t>, int> prefixes;
  for (const Prompt& prompt : prompts) {
    EXPECT_EQ(prompt.ids.size(), 40u);
    ++prefixes[{prompt.ids.begin(), prompt.ids.begin() + 31}];
  }
  ASSERT_EQ(prefixes.size(), 3u);
  for (const auto& [ids, count] : prefixes) EXPECT_EQ(count, 4);
}

TEST_F(Dataset, ShareGptTakesFirstTurns) {
  const std::string path = ::testing::TempDir() + "/sharegpt.json";
  std::ofstream(path) << R"([
    {"conversations": [{"from": "human", "value": "What is the sum of one and two?"},
                       {"from": "gpt", "value": "The sum of one and two is three."}]},
    {"conversations": [{"from": "human", "value": "alone"}]},
    {"id": 3}])";
  const auto prompts =
      make_dataset(*tokenizer, {.name = "sharegpt", .path = path, .num_prompts = 1});
  ASSERT_EQ(prompts.size(), 1u);
  EXPECT_EQ(prompts[0].text, "What is the sum of one and two?");
  EXPECT_EQ(
      prompts[0].output_len,
      static_cast<int64_t>(tokenizer->encode("The sum of one and two is three.", false)->size()));
  EXPECT_THROW(make_dataset(*tokenizer, {.name = "sharegpt", .path = path, .num_prompts = 2}),
               LoadError);
}

TEST(BenchStream, EventsAreReadHoweverTheyAreCut) {
  const std::string stream = ": ping\n\ndata: {\"a\": 1}\r\n\r\ndata:[DONE]\n\nevent: x\n";
  for (size_t piece = 1; piece < stream.size(); ++piece) {
    std::vector<std::string> payloads;
    SseReader reader([&](std::string_view payload) { payloads.emplace_back(payload); });
    for (size_t at = 0; at < stream.size(); at += piece) reader.feed(stream.substr(at, piece));
    EXPECT_EQ(payloads, (std::vector<std::string>{"{\"a\": 1}", "[DONE]"})) << piece;
  }
}

TEST(BenchStream, TokensAreToldFromTheRest) {
  EXPECT_TRUE(parse_chunk(R"({"choices":[{"text":"a","finish_reason":null}]})", true).is_token);
  EXPECT_TRUE(parse_chunk(R"({"choices":[{"text":"","finish_reason":null}]})", false).is_token);
  EXPECT_TRUE(parse_chunk(R"({"choices":[{"text":"a","finish_reason":"stop"}]})", false).is_token);
  EXPECT_FALSE(parse_chunk(R"({"choices":[{"text":"","finish_reason":"stop"}]})", false).is_token);
  EXPECT_FALSE(
      parse_chunk(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})", true).is_token);
  EXPECT_EQ(
      parse_chunk(R"({"choices":[{"delta":{"reasoning":"b","reasoning_content":"b"}}]})", true)
          .answer.reasoning,
      "b");
  const StreamChunk usage =
      parse_chunk(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}})", false);
  EXPECT_FALSE(usage.is_token);
  EXPECT_EQ(usage.prompt_tokens, 7);
  EXPECT_EQ(usage.completion_tokens, 3);
  EXPECT_FALSE(parse_chunk(R"({"error":{"message":"m"}})", false).error.empty());
  EXPECT_FALSE(parse_chunk("{", false).error.empty());
  EXPECT_TRUE(parse_chunk("[DONE]", false).is_done);
}

TEST(BenchClient, ReadsAddresses) {
  const ServerAddress plain = parse_base_url("http://127.0.0.1:8000");
  EXPECT_EQ(plain.host + " " + plain.port + " " + plain.prefix, "127.0.0.1 8000 ");
  const ServerAddress prefixed = parse_base_url("http://[::1]:81/quire/");
  EXPECT_EQ(prefixed.host + " " + prefixed.port + " " + prefixed.prefix, "::1 81 /quire");
  EXPECT_EQ(parse_base_url("http://host").port, "80");
  EXPECT_THROW(parse_base_url("https://host"), LoadError);
  EXPECT_THROW(parse_base_url("host:8000"), LoadError);
  EXPECT_THROW(parse_base_url("http://host:x"), LoadError);
}

double number(const json::object& figures, const char* key) {
  return figures.at(key).to_number<double>();
}

// Two requests that overlap, worked out by hand.
TEST(ServeReport, AddsUp) {
  std::vector<LoadRecord> records(3);
  records[0] = {.ok = true,
                .start = 0,
                .ttft = 0.5,
                .latency = 1.5,
                .itl = {0.25, 0.75},
                .prompt_len = 10,
                .output_len = 3};
  records[1] = {.ok = true,
                .start = 0.25,
                .ttft = 0.25,
                .latency = 0.5,
                .itl = {0.25},
                .prompt_len = 20,
                .output_len = 2};
  records[2].error = "HTTP 500";
  ::testing::internal::CaptureStdout();
  const json::object figures = report_serving(
      records, 2.0, {.max_concurrency = 4, .metrics = {"ttft", "tpot", "itl", "e2el"}});
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_DOUBLE_EQ(number(figures, "completed"), 2);
  EXPECT_DOUBLE_EQ(number(figures, "failed"), 1);
  EXPECT_DOUBLE_EQ(number(figures, "total_input_tokens"), 30);
  EXPECT_DOUBLE_EQ(number(figures, "output_throughput"), 2.5);
  EXPECT_DOUBLE_EQ(number(figures, "total_token_throughput"), 17.5);
  EXPECT_DOUBLE_EQ(number(figures, "max_output_tokens_per_s"), 4);  // at 0.5, 0.5, 0.75, 0.75
  EXPECT_DOUBLE_EQ(number(figures, "max_concurrent_requests"), 2);
  EXPECT_DOUBLE_EQ(number(figures, "mean_ttft_ms"), 375);
  EXPECT_DOUBLE_EQ(number(figures, "mean_tpot_ms"), 375);  // 500 and 250
  EXPECT_DOUBLE_EQ(number(figures, "median_itl_ms"), 250);
  EXPECT_DOUBLE_EQ(number(figures, "p99_e2el_ms"), 500 + 0.99 * 1000);
  EXPECT_NE(text.find("============ Serving Benchmark Result ============\n"
                      "Successful requests:                     2         \n"
                      "Failed requests:                         1         \n"
                      "Maximum request concurrency:             4         \n"
                      "Benchmark duration (s):                  2.00      \n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("---------------Time to First Token----------------\n"
                      "Mean TTFT (ms):                          375.00    \n"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace quire::bench
