#include "engine/waiting_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace quire::engine {
namespace {

TimePoint at(double seconds) {
  return TimePoint{} +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1000 + seconds));
}

// So many have ended, and as many have started in their places.
QueueMoves moved(int64_t count) { return {count, count}; }

TEST(WaitingLimit, CountsWhatIsHandedInAndWhatTheSchedulerHolds) {
  WaitingLimit limit({.requests = 3, .tokens = 0});
  EXPECT_FALSE(limit.join({2, 10}));
  limit.take();  // on its way to the scheduler: neither in the mailbox nor reported by it
  EXPECT_FALSE(limit.join({1, 10}));
  EXPECT_TRUE(limit.join({1, 1}));
  limit.update({1, 5}, {1, 0}, at(0));
  EXPECT_EQ(limit.total().requests, 2);
  EXPECT_EQ(limit.total().tokens, 15);
  EXPECT_TRUE(limit.join({2, 1})) << "all or none";
  EXPECT_FALSE(limit.join({1, 1}));
}

TEST(WaitingLimit, CountsTokensOfPrompts) {
  WaitingLimit limit({.requests = 100, .tokens = 1000});
  EXPECT_FALSE(limit.join({1, 600}));
  const auto refused = limit.join({1, 401});
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, RequestError::Kind::kOverloaded);
  EXPECT_NE(refused->message.find("limit 1000"), std::string::npos) << refused->message;
  EXPECT_FALSE(limit.join({1, 400}));
}

TEST(WaitingLimit, ARequestThatCanNeverWaitHasNoRetryAfter) {
  WaitingLimit limit({.requests = 4, .tokens = 1000});
  for (const WaitingLoad& more : {WaitingLoad{5, 5}, WaitingLoad{1, 1001}}) {
    const auto refused = limit.join(more);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->kind, RequestError::Kind::kInvalid);
    EXPECT_EQ(refused->retry_after, 0);
  }
}

TEST(WaitingLimit, BesideOthersATenantGetsHalfOfTheRequestsThatTheyLeave) {
  WaitingLimit limit({.requests = 1000, .tokens = 0});
  EXPECT_EQ(limit.join({501, 1}, {1, true})->kind, RequestError::Kind::kInvalid);
  int64_t left = 1000;
  for (uint64_t tenant = 1; tenant <= 8; ++tenant) {  // each takes what it can
    const WaitingTenant asks{tenant, true};
    int64_t got = 0;
    for (; !limit.join({1, 1}, asks); ++got)
      if (got % 3 == 0) limit.take();
    EXPECT_EQ(got, (left + 1) / 2) << "tenant " << tenant;
    EXPECT_EQ(limit.join({1, 1}, asks)->kind, RequestError::Kind::kOverloaded);
    left -= got;
  }
  EXPECT_FALSE(limit.join({1, 1}, {9, true})) << "there is room for one more";
  limit.take();
  limit.update({1, 1}, {}, at(0), {{9, {1, 1}}});
  EXPECT_FALSE(limit.join({499, 1}, {1, true})) << "what no longer waits is free again";
}

TEST(WaitingLimit, AQueueOfOneIsForAnybody) {
  WaitingLimit limit({.requests = 1, .tokens = 0});
  EXPECT_FALSE(limit.join({1, 1}, {1, true}));
  EXPECT_TRUE(limit.join({1, 1}, {2, true}));
}

TEST(WaitingLimit, BesideOthersATenantGetsHalfOfTheTokensThatTheyLeave) {
  WaitingLimit limit({.requests = 100, .tokens = 1000});
  const WaitingTenant a{1, true}, b{2, true}, alone{3, false};
  EXPECT_EQ(limit.join({1, 501}, a)->kind, RequestError::Kind::kInvalid);
  EXPECT_FALSE(limit.join({1, 300}, a));
  limit.take();
  EXPECT_FALSE(limit.join({1, 200}, a));
  const auto refused = limit.join({1, 1}, a);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, RequestError::Kind::kOverloaded);
  EXPECT_GE(refused->retry_after, 1);
  EXPECT_EQ(limit.total().tokens, 500) << "nothing is counted of what was refused";
  EXPECT_EQ(limit.join({1, 251}, b)->kind, RequestError::Kind::kOverloaded);
  EXPECT_FALSE(limit.join({1, 250}, b));
  limit.take();
  limit.update({1, 100}, {1, 0}, at(0), {{1, {1, 100}}});  // of a; all of b has started
  EXPECT_FALSE(limit.join({1, 400}, a));
  EXPECT_TRUE(limit.join({1, 1}, a));
  limit.take();
  limit.update({0, 0}, {3, 0}, at(1));
  EXPECT_FALSE(limit.join({1, 1000}, alone));
}

TEST(WaitingLimit, RetryAfterFollowsTheQueuesPace) {
  WaitingLimit limit({.requests = 10, .tokens = 0});
  ASSERT_FALSE(limit.join({10, 1000}));
  EXPECT_EQ(limit.join({1, 100})->retry_after, 1);
  limit.take();
  limit.update({10, 1000}, {}, at(0));
  for (int second = 1; second <= 200; ++second)  // one starts every five seconds
    limit.update({10, 1000}, moved(second / 5), at(second));
  EXPECT_NEAR(static_cast<double>(limit.join({1, 100})->retry_after), 5, 1);
  EXPECT_NEAR(static_cast<double>(limit.join({8, 100})->retry_after), 40, 6);
  for (int second = 201; second <= 400; ++second)  // ten a second
    limit.update({10, 1000}, moved(40 + 10 * (second - 200)), at(second));
  EXPECT_EQ(limit.join({1, 100})->retry_after, 1);
  for (int second = 401; second <= 4000; ++second)  // none any more
    limit.update({10, 1000}, moved(2040), at(second));
  EXPECT_GE(limit.join({8, 100})->retry_after, 200);
  EXPECT_LE(limit.join({8, 100})->retry_after, 600);
}

// 128 requests that start into an empty server say nothing of when the next one can.
TEST(WaitingLimit, StartsInFreePlacesAreNoPace) {
  WaitingLimit limit({.requests = 100, .tokens = 0});
  limit.update({0, 0}, {50, 50}, at(0));  // they ended when nothing waited: their places are free
  ASSERT_FALSE(limit.join({100, 1}));
  limit.take();
  limit.update({100, 1}, {50, 50}, at(1));
  for (int second = 2; second <= 101; ++second)
    limit.update({100, 1}, {std::min(178, 50 + 64 * second), 50}, at(second));
  EXPECT_GE(limit.join({1, 1})->retry_after, 25);
  limit.update({100, 1}, {178, 178}, at(102));  // all end at once
  limit.update({100, 1}, {306, 178}, at(103));
  EXPECT_EQ(limit.join({1, 1})->retry_after, 1);
}

TEST(WaitingLimit, TimeInWhichNothingWaitsIsNoPace) {
  WaitingLimit limit({.requests = 1, .tokens = 0});
  limit.update({0, 0}, {}, at(0));
  limit.update({0, 0}, {}, at(500));
  ASSERT_FALSE(limit.join({1, 1}));
  EXPECT_EQ(limit.join({1, 1})->retry_after, 1);
  limit.take();
  limit.update({1, 1}, {}, at(4000));  // with the first step after an idle hour
  EXPECT_EQ(limit.join({1, 1})->retry_after, 1);
}

}  // namespace
}  // namespace quire::engine
