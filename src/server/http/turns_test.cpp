#include "server/http/turns.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire::server::http {
namespace {

class TurnsTest : public testing::Test {
 protected:
  bool take(const std::string& client, int connection) {
    return turns_.take(
        client, [this, name = client + std::to_string(connection)] { granted_.push_back(name); });
  }
  std::vector<std::string> granted_;
  Turns turns_{2};
};

TEST_F(TurnsTest, NobodyWaitsWhileThereAreSome) {
  EXPECT_TRUE(take("a", 0));
  EXPECT_TRUE(take("a", 1));
  turns_.give_back();
  EXPECT_TRUE(take("a", 2));
  EXPECT_FALSE(take("a", 3));
  EXPECT_TRUE(granted_.empty());
}

TEST_F(TurnsTest, ClientsTakeTurnsHoweverManyConnectionsTheyHave) {
  take("a", 0), take("a", 1);
  for (int i = 2; i < 6; ++i) EXPECT_FALSE(take("a", i));
  EXPECT_FALSE(take("b", 0));
  EXPECT_FALSE(take("c", 0));
  EXPECT_FALSE(take("b", 1));
  for (int i = 0; i < 7; ++i) turns_.give_back();
  const std::vector<std::string> expected = {"a2", "b0", "c0", "a3", "b1", "a4", "a5"};
  EXPECT_EQ(granted_, expected);
  turns_.give_back();
  turns_.give_back();
  EXPECT_TRUE(take("d", 0));
  EXPECT_TRUE(take("d", 1));
  EXPECT_FALSE(take("d", 2));
}

// One that asks again at once goes behind those that wait.
TEST_F(TurnsTest, NoConnectionComesTwiceBeforeAnotherOfItsClient) {
  take("a", 0), take("a", 1);
  take("a", 2);
  turns_.give_back();
  EXPECT_FALSE(take("a", 0));
  take("b", 0);
  for (int i = 0; i < 2; ++i) turns_.give_back();
  const std::vector<std::string> expected = {"a2", "a0", "b0"};
  EXPECT_EQ(granted_, expected);
}

TEST_F(TurnsTest, WhenTheyAreOpenAllThatWaitGo) {
  take("a", 0), take("a", 1);
  take("a", 2), take("b", 0);
  turns_.open();
  EXPECT_EQ(granted_.size(), 2u);
  EXPECT_TRUE(take("a", 3));
}

}  // namespace
}  // namespace quire::server::http
