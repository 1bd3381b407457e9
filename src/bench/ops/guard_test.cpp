#include "bench/ops/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace quire::bench {
namespace {

json::object figures(const std::string& text) { return json::parse(text).as_object(); }

json::object baseline() {
  return figures(R"({"cpu": "AMD EPYC, family 26 model 2", "isa": "avx512_bf16", "threads": 2,
    "shares": {"linear/bf16": 0.9, "sample": 0.5}, "times_bf16": {"avx2/affine4": 2.0}})");
}

TEST(Guard, SaysWhatMovedByMoreThanTheTolerance) {
  json::object now = baseline();
  now["shares"].as_object()["linear/bf16"] = 0.9 * 0.84;
  now["shares"].as_object()["sample"] = 0.5 * 1.14;
  now["times_bf16"].as_object()["avx2/affine4"] = 2.0 * 1.16;
  const GuardComparison found = compare_guard(baseline(), now, 0.15);
  EXPECT_THAT(found.moved, testing::ElementsAre(GuardChange{"linear/bf16", 0.9, 0.9 * 0.84},
                                                GuardChange{"avx2/affine4", 2.0, 2.0 * 1.16}));
  EXPECT_TRUE(found.only_before.empty() && found.only_now.empty());
}

TEST(Guard, NamesCasesThatCameAndWent) {
  json::object now = baseline();
  now["shares"].as_object().erase("sample");
  now["times_bf16"].as_object()["avx2/mxfp4"] = 2;
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
  broken["shares"].as_object()["sample"] = "fast";
  EXPECT_THROW(compare_guard(broken, baseline(), 0.15), LoadError);
}

TEST(Guard, FindsQuantisedWeightsThatAreSlower) {
  json::object now = baseline();
  now["times_bf16"] =
      json::object{{"avx512_bf16/mxfp4", 0.9}, {"avx2/affine4", 0.94}, {"avx2/affine8", 0.96}};
  EXPECT_THAT(slower_than_bf16(now), testing::ElementsAre("avx512_bf16/mxfp4", "avx2/affine4"));
  EXPECT_THAT(newly_slower_than_bf16(now, nullptr, 0.15),
              testing::ElementsAre("avx512_bf16/mxfp4"));
  json::object before = baseline();
  before["times_bf16"] = json::object{{"avx512_bf16/mxfp4", 1.0}, {"avx2/affine4", 1.2}};
  EXPECT_THAT(newly_slower_than_bf16(now, &before, 0.15), testing::ElementsAre("avx2/affine4"));
}

TEST(Guard, ReadsWhatItWrote) {
  const std::string text = guard_text(baseline());
  EXPECT_EQ(json::serialize(json::parse(text)), json::serialize(baseline()));
  EXPECT_THAT(text, testing::HasSubstr("\n  \"linear/bf16\": 0.900,\n"));
}

TEST(Guard, HasAFileForEachKind) {
  EXPECT_EQ(guard_file_name(baseline()), "amd-epyc-family-26-model-2-avx512_bf16-2-threads.json");
}

}  // namespace
}  // namespace quire::bench
