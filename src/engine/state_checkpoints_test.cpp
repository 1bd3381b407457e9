#include "engine/state_checkpoints.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/state_slots.h"

namespace quire::engine {
namespace {

TEST(StateSlots, GivesTheLowestFirstAndTheFreedOnesAgain) {
  StateSlots slots(3);
  EXPECT_EQ(slots.allocate(), 0);
  EXPECT_EQ(slots.allocate(), 1);
  slots.release(0);
  EXPECT_EQ(slots.allocate(), 0);
  EXPECT_EQ(slots.allocate(), 2);
  EXPECT_EQ(slots.num_free(), 0);
  EXPECT_DEATH(slots.allocate(), "all 3 state slots are in use");
  slots.release(1);
  EXPECT_DEATH(slots.release(1), "state slot 1");
  EXPECT_DEATH(slots.release(3), "state slot 3");
  EXPECT_DEATH(slots.release(-1), "state slot -1");
}

// Slots 10, 11 and 12; blocks 0 .. 7.
class StateCheckpointsTest : public ::testing::Test {
 protected:
  ~StateCheckpointsTest() override { checkpoints_.check_integrity(); }
  // Saves a state in a plan of its own and attaches it.
  int32_t save(int32_t block) {
    checkpoints_.begin_plan();
    const int32_t slot = checkpoints_.take();
    if (slot >= 0) checkpoints_.attach(slot, block);
    return slot;
  }
  StateCheckpoints checkpoints_{3, 10, 8};
};

TEST_F(StateCheckpointsTest, TakesTheLeastRecentlyUsed) {
  EXPECT_EQ(save(0), 10);
  EXPECT_EQ(save(1), 11);
  EXPECT_EQ(save(2), 12);
  checkpoints_.touch(0);
  EXPECT_EQ(save(3), 11);
  EXPECT_EQ(checkpoints_.at(1), -1);
  EXPECT_EQ(save(4), 12);
  EXPECT_EQ(checkpoints_.at(0), 10);
  EXPECT_EQ(save(5), 10);
}

// A sequence gives up the last checkpoint of its answer for a newer one. If another has meanwhile
// saved its state at the same block, in this very plan, that slot becomes free and must wait.
TEST_F(StateCheckpointsTest, ASlotFreedInItsPlanWaitsForTheNext) {
  checkpoints_.begin_plan();
  checkpoints_.attach(checkpoints_.take(), 0);
  checkpoints_.drop(0);
  EXPECT_EQ(checkpoints_.take(), 11);
  EXPECT_EQ(checkpoints_.take(), 12);
  EXPECT_EQ(checkpoints_.take(), -1);
  checkpoints_.begin_plan();
  EXPECT_EQ(checkpoints_.take(), 10);
  for (const int32_t slot : {10, 11, 12}) checkpoints_.give_back(slot);
}

TEST_F(StateCheckpointsTest, OnePlanNeverSavesTwiceToASlot) {
  checkpoints_.begin_plan();
  for (int32_t block = 0; block < 3; ++block) checkpoints_.attach(checkpoints_.take(), block);
  EXPECT_EQ(checkpoints_.take(), -1);
  checkpoints_.begin_plan();
  EXPECT_EQ(checkpoints_.take(), 10);
  checkpoints_.give_back(10);
}

TEST_F(StateCheckpointsTest, HeldSlotsAreNotTakenFromTheirSequence) {
  checkpoints_.begin_plan();
  const int32_t held = checkpoints_.take();
  EXPECT_EQ(save(1), 11);
  EXPECT_EQ(save(2), 12);
  EXPECT_EQ(save(3), 11);
  EXPECT_EQ(checkpoints_.num_held(), 1);
  checkpoints_.attach(held, 0);
  EXPECT_EQ(checkpoints_.num_held(), 0);
  EXPECT_DEATH(checkpoints_.attach(held, 5), "state slot 10");
  EXPECT_DEATH(checkpoints_.give_back(held), "state slot 10");
}

TEST_F(StateCheckpointsTest, ABlockTakesItsCheckpointAlong) {
  save(0);
  save(1);
  checkpoints_.drop(0);
  checkpoints_.drop(0);  // none any more
  checkpoints_.drop(7);
  EXPECT_EQ(checkpoints_.num_free(), 2);
  checkpoints_.clear();
  EXPECT_EQ(checkpoints_.num_attached(), 0);
  EXPECT_EQ(checkpoints_.at(1), -1);
}

TEST(StateCheckpoints, WithoutSlotsNothingIsSaved) {
  StateCheckpoints none(0, 0, 4);
  EXPECT_EQ(none.take(), -1);
  none.drop(1);
  none.clear();
  none.check_integrity();
}

TEST(StateCheckpoints, RandomUseKeepsItsBooks) {
  std::mt19937 random(3);
  StateCheckpoints checkpoints(5, 2, 12);
  std::vector<int32_t> held;
  for (int i = 0; i < 20000; ++i) {
    const auto block = static_cast<int32_t>(random() % 12);
    switch (random() % 6) {
      case 0:
        checkpoints.begin_plan();
        break;
      case 1:
        if (const int32_t slot = checkpoints.take(); slot >= 0) held.push_back(slot);
        break;
      case 2:
      case 3:
        if (held.empty() || checkpoints.at(block) >= 0) break;
        checkpoints.attach(held.back(), block);
        held.pop_back();
        break;
      case 4:
        if (checkpoints.at(block) >= 0) checkpoints.touch(block);
        break;
      default:
        if (random() % 2 == 0) checkpoints.drop(block);
        checkpoints.begin_plan();  // blocks are given up before a plan saves, never after
    }
    checkpoints.check_integrity();
    ASSERT_EQ(checkpoints.num_held(), static_cast<int64_t>(held.size()));
    // Another plan's turn before a slot that was just given back is saved to again.
    if (!held.empty() && random() % 16 == 0) {
      checkpoints.give_back(held.back());
      held.pop_back();
      checkpoints.begin_plan();
    }
  }
}

}  // namespace
}  // namespace quire::engine
