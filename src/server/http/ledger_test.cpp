#include "server/http/ledger.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace quire::server::http {
namespace {

constexpr size_t kMiB = 1u << 20;

std::shared_ptr<Account> account(const std::shared_ptr<Ledger>& ledger, const std::string& who) {
  return std::make_shared<Account>(ledger, who);
}

TEST(Ledger, CountsByKindAndGivesBack) {
  const auto ledger = std::make_shared<Ledger>(64 * kMiB, 16);
  {
    Charge body(account(ledger, "a"), Held::kBodies);
    EXPECT_TRUE(body.try_add(1000));
    EXPECT_TRUE(body.try_add(24));
    Charge moved = std::move(body);
    Charge answer(account(ledger, "a"), Held::kAnswers);
    EXPECT_TRUE(answer.try_add(5 * kMiB));
    EXPECT_EQ(ledger->held(Held::kBodies), 1024u);
    EXPECT_EQ(ledger->held(Held::kAnswers), 5 * kMiB);
    EXPECT_EQ(ledger->held(), 5 * kMiB + 1024);
    answer = Charge();
    EXPECT_EQ(ledger->held(), 1024u);
  }
  EXPECT_EQ(ledger->held(), 0u);
  EXPECT_EQ(ledger->take_released(6 * kMiB), 0u);
  EXPECT_EQ(ledger->take_released(5 * kMiB), 5 * kMiB);
  EXPECT_EQ(ledger->take_released(1), 0u);
}

TEST(Ledger, OneOwnerGetsHalfAndSmallRequestsAlwaysFit) {
  constexpr size_t kConnections = 64;
  const auto ledger = std::make_shared<Ledger>(64 * kMiB, kConnections);
  const size_t own = Ledger::kOwnBytes;
  const size_t shared = 64 * kMiB - kConnections * own;
  std::vector<std::shared_ptr<Account>> greedy;
  size_t got = 0;
  for (int i = 0; i < 32; ++i) {
    greedy.push_back(account(ledger, "greedy"));
    while (greedy.back()->try_add(Held::kBodies, kMiB)) got += kMiB;
  }
  EXPECT_LE(got, shared / 2 + 32 * own);
  EXPECT_GE(got, shared / 2 - kMiB);
  EXPECT_FALSE(greedy.back()->would_fit(kMiB));

  // Others have half of what is left, each; after them there is still a small request for
  // everybody.
  std::vector<std::shared_ptr<Account>> others;
  for (size_t piece = kMiB / 2; piece > 0; piece /= 2)
    while (greedy.back()->try_add(Held::kBodies, piece)) got += piece;
  size_t left = shared - shared / 2;
  for (int i = 0; i < 8; ++i) {
    others.push_back(account(ledger, "other " + std::to_string(i)));
    EXPECT_TRUE(others.back()->try_add(Held::kPrompts, own + left / 2)) << i;
    EXPECT_FALSE(others.back()->try_add(Held::kPrompts, 1)) << i;
    left -= left / 2;
  }
  std::vector<std::shared_ptr<Account>> small;
  for (int i = 0; i < 24; ++i) {
    small.push_back(account(ledger, i % 2 == 0 ? "greedy" : "other 0"));
    EXPECT_TRUE(small.back()->try_add(Held::kBodies, own));
    EXPECT_FALSE(small.back()->try_add(Held::kBodies, 4 * kMiB));
  }
  EXPECT_LE(ledger->held(), 64 * kMiB);
}

TEST(Ledger, WhatIsHeldGoesWithItsOwner) {
  const auto ledger = std::make_shared<Ledger>(64 * kMiB, 16);
  const size_t half = (64 * kMiB - 16 * Ledger::kOwnBytes) / 2;
  const auto first = account(ledger, "address"), second = account(ledger, "address");
  EXPECT_TRUE(first->try_add(Held::kBodies, half));
  EXPECT_FALSE(second->try_add(Held::kBodies, half));
  second->set_owner("key b");
  EXPECT_TRUE(second->try_add(Held::kBodies, half / 2));
  first->set_owner("key a");
  const auto third = account(ledger, "key a");
  EXPECT_FALSE(third->would_fit(kMiB));
  first->remove(Held::kBodies, half);
  second->set_owner("address");
  EXPECT_TRUE(third->try_add(Held::kBodies, half / 2));
  EXPECT_FALSE(account(ledger, "address")->would_fit(half / 2));
  EXPECT_TRUE(account(ledger, "key b")->would_fit(half / 2));
  third->remove(Held::kBodies, half / 2);
  second->remove(Held::kBodies, half / 2);
  EXPECT_EQ(ledger->held(), 0u);
}

TEST(Ledger, ThreadsLeaveNothingBehind) {
  const auto ledger = std::make_shared<Ledger>(8 * kMiB, 8);
  std::vector<std::thread> threads;
  std::atomic<bool> exceeded{false};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const auto mine = account(ledger, std::to_string(t % 2));
      for (int i = 0; i < 5000; ++i) {
        Charge charge(mine, static_cast<Held>(i % 4));
        (void)charge.try_add(static_cast<size_t>(i) * 977 % (2 * kMiB));
        if (ledger->held() > 8 * kMiB) exceeded = true;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(ledger->held(), 0u);
}

// A grammar's memory is many small blocks, none of which is used again soon.
TEST(Ledger, GrammarsAreGivenBackHoweverSmall) {
  const auto ledger = std::make_shared<Ledger>(64 * kMiB, 16);
  for (int i = 0; i < 20; ++i) {
    Charge grammar(account(ledger, "a"), Held::kGrammars),
        prompt(account(ledger, "a"), Held::kPrompts);
    EXPECT_TRUE(grammar.try_add(100 << 10));
    EXPECT_TRUE(prompt.try_add(100 << 10));
    EXPECT_EQ(ledger->held(Held::kGrammars), 100u << 10);
  }
  EXPECT_EQ(ledger->take_released(1), 20u * (100 << 10));
  Charge(account(ledger, "a"), Held::kPrompts).try_add(1000);
  EXPECT_EQ(ledger->take_released(1), 0u);
  EXPECT_EQ(ledger->take_all_released(2000), 0u);
  EXPECT_EQ(ledger->take_all_released(1000), 1000u);
  EXPECT_EQ(ledger->take_all_released(1), 0u);
  EXPECT_EQ(ledger->held(), 0u);
}

}  // namespace
}  // namespace quire::server::http
