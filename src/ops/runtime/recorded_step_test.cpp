#include "ops/runtime/recorded_step.h"

#include <gtest/gtest.h>

namespace quire::ops {
namespace {

StepValues values_of(std::vector<int32_t> rows) {
  auto layout = std::make_shared<BatchLayout>();
  layout->num_tokens = layout->num_sequences = 2;
  layout->block_size = 16;
  layout->rows = std::move(rows);
  const auto ids = std::make_shared<const std::vector<int32_t>>(2);
  return {.layout = layout, .ids = ids, .from = ids};
}

bool fits(const StepValues& recorded, const StepValues& now) {
  const StepRecording recording{.values = recorded,
                                .previous = mx::zeros({2}, mx::int32),
                                .outputs = {},
                                .run = {},
                                .count = {}};
  return fits_recording(recording, now, {});
}

// A recording that takes all rows has no kernel that gathers them.
TEST(RecordedStep, FitsOnlyIfItTakesAllRowsAsItWasRecorded) {
  const StepValues all = values_of({0, 1}), some = values_of({1, 1});
  EXPECT_TRUE(fits(all, values_of({0, 1})));
  EXPECT_FALSE(fits(all, some));
  EXPECT_FALSE(fits(some, all));
  EXPECT_TRUE(fits(some, values_of({0, 0})));
}

// Kernels of a recording for short contexts have no room for longer ones.
TEST(RecordedStep, FitsNoLongerContextsThanItWasRecordedFor) {
  StepValues any = values_of({0, 1}), shorter = any;
  shorter.longest = 512;
  const auto now = [&](int32_t first, int32_t second) {
    StepValues values = values_of({0, 1});
    auto layout = std::make_shared<BatchLayout>(*values.layout);
    layout->seq_lens = {first, second};
    values.layout = layout;
    return values;
  };
  EXPECT_TRUE(fits(shorter, now(512, 0)));
  EXPECT_FALSE(fits(shorter, now(3, 513)));
  EXPECT_TRUE(fits(any, now(3, 513)));
}

}  // namespace
}  // namespace quire::ops
