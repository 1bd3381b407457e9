#include "server/cache_doctor.h"

#include <gtest/gtest.h>

namespace quire::server {
namespace {

using Ids = std::vector<int32_t>;

// `length` different tokens.
Ids prompt(size_t length, int32_t first = 0) {
  Ids ids(length);
  for (size_t i = 0; i < length; ++i) ids[i] = first + static_cast<int32_t>(i);
  return ids;
}

Ids with(Ids ids, size_t at, const Ids& inserted, size_t replaced = 0) {
  ids.erase(ids.begin() + at, ids.begin() + at + replaced);
  ids.insert(ids.begin() + at, inserted.begin(), inserted.end());
  return ids;
}

// As a header that changes with every request, and the time of day.
TEST(CacheDoctor, ALineThatChangesNearTheBeginningIsFound) {
  CacheDoctor doctor;
  const Ids first = with(prompt(3000), 12, {-1, -2, -3});
  const Ids second = with(prompt(3000), 12, {-1, -9, -8, -7});
  EXPECT_FALSE(doctor.look_at(1, first));
  const auto finding = doctor.look_at(1, second);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->position, 13u);
  EXPECT_EQ(finding->before, (Ids{-2, -3}));
  EXPECT_EQ(finding->after, (Ids{-9, -8, -7}));
  EXPECT_FALSE(doctor.look_at(1, first)) << "it is said once";
}

TEST(CacheDoctor, TheFirstPercentIsThatOfTheWholePrompt) {
  const Ids base = prompt(30'000);
  CacheDoctor early, late;
  early.look_at(1, with(base, 250, {-1}, 1));
  EXPECT_TRUE(early.look_at(1, with(base, 250, {-2}, 1)));
  late.look_at(1, with(base, 350, {-1}, 1));
  EXPECT_FALSE(late.look_at(1, with(base, 350, {-2}, 1)));
}

TEST(CacheDoctor, WhatIsOnlyInOneIsFoundToo) {
  CacheDoctor doctor;
  doctor.look_at(1, prompt(3000));
  const auto finding = doctor.look_at(1, with(prompt(3000), 5, {-1, -2}));
  ASSERT_TRUE(finding);
  EXPECT_TRUE(finding->before.empty());
  EXPECT_EQ(finding->after, (Ids{-1, -2}));
}

// Turns that grow, sub-agents with prompts of their own, edited histories, other clients, short
// prompts.
TEST(CacheDoctor, WhatAgentsDoOtherwiseIsNoFinding) {
  CacheDoctor doctor;
  const Ids agent = prompt(3000);
  EXPECT_FALSE(doctor.look_at(1, agent));
  EXPECT_FALSE(doctor.look_at(1, agent));
  EXPECT_FALSE(doctor.look_at(1, with(agent, 3000, prompt(500, 90'000))));
  Ids other = with(prompt(900, 50'000), 0, {0, 1, 2});
  EXPECT_FALSE(doctor.look_at(1, other));
  EXPECT_FALSE(doctor.look_at(1, with(agent, 1500, {}, 100)));
  EXPECT_FALSE(doctor.look_at(2, with(agent, 10, {-1}, 1)));
  EXPECT_FALSE(doctor.look_at(3, prompt(300)));
  EXPECT_FALSE(doctor.look_at(3, with(prompt(300), 1, {-1}, 1)));
}

TEST(CacheDoctor, AMainAgentBetweenSubAgentsIsFound) {
  CacheDoctor doctor;
  doctor.look_at(1, with(prompt(3000), 10, {-1}, 1));
  for (int32_t i = 1; i < 5; ++i) EXPECT_FALSE(doctor.look_at(1, prompt(1000, 10'000 * i)));
  EXPECT_TRUE(doctor.look_at(1, with(prompt(3000), 10, {-2}, 1)));
}

}  // namespace
}  // namespace quire::server
