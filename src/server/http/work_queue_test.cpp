#include "server/http/work_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <future>
#include <memory>

#include "server/http/options.h"

namespace quire::server::http {
namespace {

using Size = WorkQueue::Size;

// A job that waits until it is let go, and says when it has begun. It must outlive the queue.
struct Gate {
  std::promise<void> begun, open;
  WorkQueue::Job job() {
    return [this] {
      begun.set_value();
      open.get_future().wait();
    };
  }
};

// Told by a job, which may outlive who waits.
struct Done {
  std::shared_ptr<std::promise<void>> told = std::make_shared<std::promise<void>>();
  WorkQueue::Job job() const {
    return [told = told] { told->set_value(); };
  }
  bool comes() const {
    return told->get_future().wait_for(std::chrono::seconds(120)) == std::future_status::ready;
  }
};

TEST(WorkQueue, LargeJobsNeverStandBeforeSmallOnes) {
  Gate gate;
  WorkQueue queue(2, {100});
  queue.post(Size::kLarge, "a", gate.job());
  gate.begun.get_future().wait();
  for (int i = 0; i < 50; ++i) queue.post(Size::kLarge, "a", [] {});
  Done done;
  queue.post(Size::kSmall, "a", done.job());
  EXPECT_TRUE(done.comes());
  EXPECT_EQ(queue.num_waiting(), 50u);
  gate.open.set_value();
}

TEST(WorkQueue, OwnersTakeTurns) {
  Gate gate;
  WorkQueue queue(1, {100});
  queue.post(Size::kLarge, "first", gate.job());
  gate.begun.get_future().wait();
  std::string order;
  Done done;
  for (int i = 0; i < 5; ++i) queue.post(Size::kLarge, "a", [&] { order += 'a'; });
  queue.post(Size::kLarge, "b", [&] { order += 'b'; });
  queue.post(Size::kLarge, "c", [&] { order += 'c'; });
  queue.post(Size::kLarge, "b", [&] { order += 'b'; });
  queue.post(Size::kLarge, "a", done.job());
  gate.open.set_value();
  ASSERT_TRUE(done.comes());
  EXPECT_EQ(order, "abcabaaa");
}

// However many grammars one owner sends, another one's is not behind them.
TEST(WorkQueue, AnOwnerCompilesOneGrammarAtATime) {
  Gate gate;
  WorkQueue queue(2, {100});
  queue.post(Size::kGrammar, "a", gate.job());
  gate.begun.get_future().wait();
  std::atomic<int> ran{0};
  for (int i = 0; i < 5; ++i) queue.post(Size::kGrammar, "a", [&] { ++ran; });
  for (int i = 0; i < 3; ++i) {
    Done done;
    queue.post(Size::kGrammar, "b", done.job());
    ASSERT_TRUE(done.comes());
  }
  Done small;
  queue.post(Size::kSmall, "a", small.job());
  ASSERT_TRUE(small.comes());
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(queue.num_waiting(), 5u);
  gate.open.set_value();
  while (ran < 5) std::this_thread::yield();
}

TEST(WorkQueue, IsBounded) {
  Gate gate;
  WorkQueue queue(1, {3});
  ASSERT_TRUE(queue.try_post(Size::kSmall, "a", gate.job(), [] {}));
  gate.begun.get_future().wait();
  std::atomic<int> ran{0};
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.try_post(Size::kSmall, "a", [&] { ++ran; }, [] {}));
  EXPECT_FALSE(queue.try_post(Size::kSmall, "a", [&] { ++ran; }, [] {}));
  gate.open.set_value();
  while (queue.num_waiting() > 0) std::this_thread::yield();
  EXPECT_TRUE(queue.try_post(Size::kSmall, "b", [] {}, [] {}));
  queue.stop();
  EXPECT_GE(ran, 2);
}

TEST(WorkQueue, AFullQueueMakesRoomAtTheCostOfWhoHasMost) {
  Gate gate;
  WorkQueue queue(1, {4});
  queue.post(Size::kLarge, "a", gate.job());
  gate.begun.get_future().wait();
  std::string ran, refused;
  const auto post = [&](const std::string& owner, char name) {
    return queue.try_post(
        Size::kLarge, owner, [&ran, name] { ran += name; }, [&refused, name] { refused += name; });
  };
  for (const char name : {'1', '2', '3', '4'}) EXPECT_TRUE(post("a", name));
  EXPECT_TRUE(post("b", '5'));
  EXPECT_EQ(refused, "4");
  EXPECT_TRUE(post("b", '6'));
  EXPECT_EQ(refused, "43");
  EXPECT_FALSE(post("b", '7')) << "b has as many as a";
  EXPECT_FALSE(post("a", '8'));
  EXPECT_TRUE(post("c", '9'));
  EXPECT_EQ(refused.size(), 3u);
  EXPECT_EQ(queue.num_waiting(), 4u);
  gate.open.set_value();
  while (queue.num_waiting() > 0) std::this_thread::yield();
  queue.stop();
  EXPECT_GE(ran.size(), 3u);  // the last one may be running when the queue stops
  EXPECT_EQ(ran.substr(0, 2), "15");
}

TEST(WorkQueue, WhatMustBeDoneKeepsItsPlace) {
  Gate gate;
  WorkQueue queue(1, {2});
  queue.post(Size::kLarge, "a", gate.job());
  gate.begun.get_future().wait();
  std::atomic<int> ran{0};
  for (int i = 0; i < 3; ++i) queue.post(Size::kLarge, "a", [&] { ++ran; });
  EXPECT_FALSE(queue.try_post(Size::kLarge, "b", [] {}, [] {}));
  queue.refuse_late(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(queue.num_waiting(), 3u);
  gate.open.set_value();
  while (ran < 3) std::this_thread::yield();
}

TEST(WorkQueue, RefusesWhatHasWaitedTooLong) {
  Gate gate;
  WorkQueue queue(1, {.waiting = 10, .wait = std::chrono::hours(2)});
  queue.post(Size::kLarge, "a", gate.job());
  gate.begun.get_future().wait();
  int refused = 0, ran = 0;
  for (const char* owner : {"a", "b", "a", "b", "a"}) {
    EXPECT_TRUE(queue.try_post(Size::kLarge, owner, [&] { ++ran; }, [&] { ++refused; }));
  }
  queue.refuse_late(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(refused, 0);
  queue.refuse_late(Clock::now() + std::chrono::hours(3));
  EXPECT_EQ(refused, 5);
  EXPECT_EQ(queue.num_waiting(), 0u);
  Done done;
  queue.post(Size::kLarge, "b", done.job());
  gate.open.set_value();
  ASSERT_TRUE(done.comes());
  EXPECT_EQ(ran, 0);
}

TEST(WorkQueue, OneLargeJobLeavesAThreadToOthers) {
  Gate gate;
  WorkQueue queue(HttpOptions().worker_threads, {});
  queue.post(Size::kLarge, "a", gate.job());
  gate.begun.get_future().wait();
  Done done;
  queue.post(Size::kLarge, "b", done.job());
  EXPECT_TRUE(done.comes());
  gate.open.set_value();
}

// However long they take: a size is a guess.
TEST(WorkQueue, AnOwnerLeavesAThreadOfEachSizeToOthers) {
  for (const Size size : {Size::kSmall, Size::kLarge}) {
    std::array<Gate, 2> gates;
    WorkQueue queue(6, {});  // three of each size
    for (Gate& gate : gates) {
      queue.post(size, "a", gate.job());
      gate.begun.get_future().wait();
    }
    std::atomic<int> ran{0};
    for (int i = 0; i < 5; ++i) queue.post(size, "a", [&] { ++ran; });
    for (int i = 0; i < 3; ++i) {
      Done done;
      queue.post(size, "b", done.job());
      ASSERT_TRUE(done.comes());
    }
    EXPECT_EQ(ran, 0);
    EXPECT_EQ(queue.num_waiting(), 5u);
    for (Gate& gate : gates) gate.open.set_value();
    while (ran < 5) std::this_thread::yield();
  }
}

TEST(WorkQueue, StoppingDropsWhatWaits) {
  Gate gate;
  WorkQueue queue(1, {100});
  queue.post(Size::kSmall, "a", gate.job());
  gate.begun.get_future().wait();
  std::atomic<int> ran{0};
  for (int i = 0; i < 10; ++i) queue.post(Size::kSmall, "a", [&] { ++ran; });
  std::thread stopper([&] { queue.stop(); });
  while (queue.num_waiting() > 0) std::this_thread::yield();
  gate.open.set_value();
  stopper.join();
  EXPECT_EQ(ran, 0);
  EXPECT_FALSE(queue.try_post(Size::kSmall, "a", [] {}, [] {}));
}

}  // namespace
}  // namespace quire::server::http
