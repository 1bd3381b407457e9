#include "server/admission.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace quire::server {
namespace {

using std::chrono::milliseconds;
using AdmissionPtr = std::shared_ptr<Admission>;

TEST(Admission, CountsTheRequestsOfEachClientApart) {
  const auto control = std::make_shared<AdmissionControl>();
  const AdmissionControl::Limits limits{.requests = 2, .generations = 0};
  std::vector<AdmissionPtr> held;
  for (const uint64_t client : {1, 1, 2, 2}) {
    auto admission = control->admit(client, limits, nullptr);
    ASSERT_TRUE(admission);
    held.push_back(*admission);
  }
  const auto refused = control->admit(1, limits, nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 429);
  EXPECT_NE(refused.error().message.find("--max-concurrent-requests-per-key"), std::string::npos);
  held.erase(held.begin());  // one of client 1 ends
  EXPECT_TRUE(control->admit(1, limits, nullptr));
  EXPECT_FALSE(control->admit(2, limits, nullptr));
}

TEST(Admission, CountsGenerations) {
  const auto control = std::make_shared<AdmissionControl>();
  const AdmissionControl::Limits limits{.requests = 0, .generations = 10};
  auto first = *control->admit(1, limits, nullptr);
  auto second = *control->admit(1, limits, nullptr);
  EXPECT_TRUE(first->add_generations(6));
  const auto too_many = second->add_generations(5);
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().status, 429);
  EXPECT_TRUE(second->add_generations(4));
  EXPECT_EQ(first->add_generations(11).error().status, 400);  // can never be
  const auto other = *control->admit(2, limits, nullptr);
  EXPECT_TRUE(other->add_generations(10));
  first.reset();
  auto third = *control->admit(1, limits, nullptr);
  EXPECT_TRUE(third->add_generations(6));
}

TEST(Admission, IsExactWithManyThreads) {
  const auto control = std::make_shared<AdmissionControl>();
  const AdmissionControl::Limits limits{.requests = 5, .generations = 12};
  std::atomic<int64_t> requests{0}, generations{0}, granted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        auto admission = control->admit(7, limits, nullptr);
        if (!admission) continue;
        EXPECT_LE(++requests, 5);
        const int64_t count = 1 + (i + t) % 6;
        if ((*admission)->add_generations(count)) {
          EXPECT_LE(generations += count, 12);
          ++granted;
          generations -= count;
        }
        --requests;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_GT(granted, 0);
  EXPECT_TRUE(control->wait_until_none(milliseconds(0)));
}

TEST(Admission, IsWaitedFor) {
  const auto control = std::make_shared<AdmissionControl>();
  auto admission = *control->admit(1, {}, nullptr);
  EXPECT_FALSE(control->wait_until_none(milliseconds(1)));
  EXPECT_EQ(control->exchanges().size(), 1u);
  std::thread ender([&] { admission.reset(); });
  EXPECT_TRUE(control->wait_until_none(milliseconds(120'000)));
  ender.join();
  EXPECT_TRUE(control->exchanges().empty());
}

}  // namespace
}  // namespace quire::server
