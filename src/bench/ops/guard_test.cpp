#include "bench/ops/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace quire::bench {
namespace {

json::object figures(const std::string& text) { return json::parse(text).as_object(); }

json::object baseline() {
  return figures(R"({"cpu": "AMD EPYC, family 26 model 2", "isa": "avx512_bf16", "threads": 2,
    "shares": {"linear/bf16": [0.5, 0.9, 1.0], "sample": [0.5, 0.5, 0.5]},
    "times_bf16": {"avx2/affine4": [1.9, 2.0, 2.0]}})");
}
json::array exactly(double value) { return {value, value, value}; }

TEST(Guard, SaysWhatMovedByMoreThanTheTolerance) {
  json::object now = baseline();
  json::object& shares = now["shares"].as_object();
  shares["linear/bf16"] = {0.2, 0.5 * 0.84, 0.5 * 0.86};  // its most is near what the least was
  shares["sample"] = {0.5 * 1.14, 1, 2};
  now["times_bf16"].as_object()["avx2/affine4"] = exactly(2.0 * 1.16);
  GuardComparison found = compare_guard(baseline(), now, 0.15);
  EXPECT_THAT(found.moved, testing::ElementsAre(
                               GuardChange{"avx2/affine4", {1.9, 2.0, 2.0}, {2.32, 2.32, 2.32}}));
  shares["linear/bf16"] = {0.2, 0.3, 0.5 * 0.84};
  found = compare_guard(baseline(), now, 0.15);
  ASSERT_EQ(found.moved.size(), 2u);
  EXPECT_EQ(found.moved[0], (GuardChange{"linear/bf16", {0.5, 0.9, 1.0}, {0.2, 0.3, 0.42}}));
  EXPECT_TRUE(found.only_before.empty() && found.only_now.empty());
}

TEST(Guard, NamesCasesThatCameAndWent) {
  json::object now = baseline();
  now["shares"].as_object().erase("sample");
  now["times_bf16"].as_object()["avx2/mxfp4"] = exactly(2);
  const GuardComparison found = compare_guard(baseline(), now, 0.15);
  EXPECT_TRUE(found.moved.empty());
  EXPECT_THAT(found.only_before, testing::ElementsAre("sample"));
  EXPECT_THAT(found.only_now, testing::ElementsAre("avx2/mxfp4"));
}

TEST(Guard, RefusesABaselineOfAnotherKind) {
  for (const auto& [key, value] : json::object{{"cpu", "else"}, {"isa", "avx2"}, {"threads", 4}}) {
    json::object other = baseline();
    other[key] = value;
    EXPECT_THROW(compare_guard(other, baseline(), 0.15), LoadError) << key;
  }
  json::object broken = baseline();
  broken.erase("shares");
  EXPECT_THROW(compare_guard(broken, baseline(), 0.15), LoadError);
  broken = baseline();
  for (const json::value& figure :
       std::vector<json::value>{"fast", 0.5, json::array{1, 2}, json::array{1, 2, "fast"}}) {
    broken["shares"].as_object()["sample"] = figure;
    EXPECT_THROW(compare_guard(broken, baseline(), 0.15), LoadError) << json::serialize(figure);
  }
}

TEST(Guard, FindsQuantisedWeightsThatAreSlower) {
  json::object now = baseline();
  now["times_bf16"] = json::object{{"avx512_bf16/mxfp4", exactly(0.9)},
                                   {"avx2/affine4", {0.9, 0.94, 1.3}},
                                   {"avx2/affine8", {0.9, 0.96, 0.97}}};
  EXPECT_THAT(slower_than_bf16(now), testing::ElementsAre("avx512_bf16/mxfp4", "avx2/affine4"));
  EXPECT_THAT(newly_slower_than_bf16(now, nullptr, 0.15),
              testing::ElementsAre("avx512_bf16/mxfp4"));
  json::object before = baseline();
  before["times_bf16"] =
      json::object{{"avx512_bf16/mxfp4", {1.0, 1.3, 1.4}}, {"avx2/affine4", {1.2, 1.2, 1.3}}};
  EXPECT_THAT(newly_slower_than_bf16(now, &before, 0.15), testing::ElementsAre("avx2/affine4"));
}

TEST(Guard, ReadsWhatItWrote) {
  const std::string text = guard_text(baseline());
  EXPECT_EQ(json::serialize(json::parse(text)), json::serialize(baseline()));
  EXPECT_THAT(text, testing::HasSubstr("\n  \"linear/bf16\": [0.500, 0.900, 1.000],\n"));
}

TEST(Guard, HasAFileForEachKind) {
  EXPECT_EQ(guard_file_name(baseline()), "amd-epyc-family-26-model-2-avx512_bf16-2-threads.json");
}

}  // namespace
}  // namespace quire::bench
