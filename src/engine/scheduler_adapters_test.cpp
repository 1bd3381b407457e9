// Which requests with adapters may run together, and what they share.
#include "engine/scheduler_test_util.h"

namespace quire::engine {
namespace {

class SchedulerAdapters : public SchedulerTest {
 protected:
  SequencePtr add_with(int32_t adapter, int32_t first_token, uint64_t tenant = 0) {
    auto sequence = std::make_shared<Sequence>();
    sequence->id = ++id_;
    sequence->tokens = count_up(first_token, 5);
    sequence->prompt_len = 5;
    sequence->request.sampling.max_tokens = 3;
    sequence->request.adapter = adapter;
    sequence->request.tenant = tenant;
    scheduler().add(sequence);
    return sequence;
  }
  static bool runs(const SequencePtr& sequence) {
    return sequence->state == Sequence::State::kRunning;
  }
  static bool has_ended(const SequencePtr& sequence) {
    return sequence->state == Sequence::State::kFinished;
  }

 private:
  RequestId id_ = 100;
};

TEST_F(SchedulerAdapters, RunTogetherWithoutALimit) {
  const auto a = add_with(0, 10), b = add_with(1, 30), base = add_with(-1, 50);
  step();
  EXPECT_TRUE(runs(a) && runs(b) && runs(base));
  EXPECT_EQ(scheduler().adapter_loads().num_running(), 2);
}

TEST_F(SchedulerAdapters, WaitWhileEnoughOthersRun) {
  options_.max_adapters = 1;
  const auto a = add_with(0, 10), b = add_with(1, 30), same = add_with(0, 50);
  step();
  EXPECT_TRUE(runs(a));
  EXPECT_FALSE(runs(b));
  EXPECT_EQ(scheduler().adapter_loads().all().at(1).waiting, 1);
  // Nobody of its tenant passes it from now on, so that its turn comes.
  const auto later = add_with(0, 70), base = add_with(-1, 90);
  while (!has_ended(a)) {
    step();
    EXPECT_LE(scheduler().adapter_loads().num_running(), 1);
  }
  for (int i = 0; i < 20 && !has_ended(b); ++i) step();
  EXPECT_TRUE(has_ended(b));
  for (int i = 0; i < 20; ++i) step();
  for (const auto& sequence : {same, later, base}) EXPECT_TRUE(has_ended(sequence));
  EXPECT_EQ(scheduler().adapter_loads().num_running(), 0);
}

TEST_F(SchedulerAdapters, StartInTimeBesideATenantThatNeverStops) {
  options_.max_adapters = 1;
  add_with(0, 10, /*tenant=*/1);
  step();
  const auto other = add_with(1, 30, /*tenant=*/2);
  int steps = 0;
  for (; steps < 100 && !has_ended(other); ++steps) {
    add_with(0, 10 + steps, /*tenant=*/1);
    step();
  }
  EXPECT_LT(steps, 100) << "starved";
}

TEST_F(SchedulerAdapters, ShareNoPrefixes) {
  const auto first = add_with(0, 10);
  while (!has_ended(first)) step();
  for (const int32_t adapter : {1, -1}) {
    const auto other = add_with(adapter, 10);
    step();
    EXPECT_EQ(other->stats.cached_tokens, 0) << adapter;
    while (!has_ended(other)) step();
  }
  const auto again = add_with(0, 10);
  step();
  EXPECT_EQ(again->stats.cached_tokens, 4);
}

// No salt takes a client to another adapter's prefixes.
TEST_F(SchedulerAdapters, CannotBeReachedByASalt) {
  const auto first = add_with(0, 10);
  while (!has_ended(first)) step();
  for (const char* salt : {"0 ", " 0 ", "-1 0 "}) {
    const auto other = add(count_up(10, 5), {.max_tokens = 1}, salt);
    step();
    EXPECT_EQ(other->stats.cached_tokens, 0);
  }
}

}  // namespace
}  // namespace quire::engine
