#include "engine/step_cost.h"

#include <gtest/gtest.h>

#include <random>

namespace quire::engine {
namespace {

// A machine whose steps take as long as StepCost's formula says, times a noise factor.
struct Machine {
  double base = 0.05, row = 1e-4, row_context = 1e-8, token = 1e-3, context = 4e-8, chunk = 1e-6;

  double seconds(const StepLoad& load) const {
    const double rows = load.decode_rows == 0
                            ? 0
                            : base + row * static_cast<double>(load.decode_rows) +
                                  row_context * static_cast<double>(load.decode_context);
    return rows + token * static_cast<double>(load.prompt_tokens) +
           context * static_cast<double>(load.prompt_context) +
           chunk * static_cast<double>(load.chunk_context);
  }
};

StepLoad rows(int64_t count, int64_t position) {
  StepLoad load;
  for (int64_t i = 0; i < count; ++i) load.add_row(position);
  return load;
}

// What a server sees: rows alone at growing contexts, a prompt alone in whole chunks, and another
// in small ones beside rows.
void teach(StepCost& cost, const Machine& machine, double noise) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
  const auto observe = [&](const StepLoad& load) {
    cost.observe(load, machine.seconds(load) * factor(random));
  };
  for (int64_t i = 0; i < 200; ++i) observe(rows(1 + i % 16, 100 + 10 * i));
  for (int64_t start = 0; start < 16384; start += 2048) {
    StepLoad load;
    load.add_chunk(start, 2048);
    observe(load);
  }
  for (int64_t start = 0; start < 8192; start += 64) {
    StepLoad load = rows(16, 200 + start / 64);
    load.add_chunk(start, 64);
    observe(load);
  }
}

TEST(StepCost, LearnsWhatRowsAndChunksTakeWithTheirContexts) {
  const Machine machine;
  StepCost cost;
  teach(cost, machine, 0.1);
  for (const int64_t count : {2, 8, 16})
    EXPECT_NEAR(cost.decode_seconds(rows(count, 1000)) / machine.seconds(rows(count, 1000)), 1,
                0.1);
  for (const int64_t start : {0, 1000, 8000, 30000}) {
    StepLoad load;
    load.add_chunk(start, 100);
    EXPECT_NEAR(cost.chunk_seconds(start, 100) / machine.seconds(load), 1, 0.2) << start;
  }
}

TEST(StepCost, AChunkTakesTheTimeItWasGiven) {
  StepCost cost;
  teach(cost, Machine{}, 0.1);
  int64_t last = 1 << 30;
  for (const int64_t start : {0, 1000, 8000, 30000}) {
    const int64_t tokens = cost.chunk_within(0.1, start);
    EXPECT_LE(cost.chunk_seconds(start, tokens), 0.1 * (1 + 1e-9));
    EXPECT_GT(cost.chunk_seconds(start, tokens + 1), 0.1 * (1 - 1e-9));
    EXPECT_LT(tokens, last) << "more context, fewer tokens";
    last = tokens;
  }
  EXPECT_EQ(cost.chunk_within(1e-6, 30000), 0);
}

TEST(StepCost, FollowsAMachineThatBecomesSlower) {
  const Machine machine;
  StepCost cost;
  teach(cost, machine, 0);
  const StepLoad load = rows(8, 500);
  for (int i = 0; i < 30; ++i) cost.observe(load, 2 * machine.seconds(load));
  EXPECT_NEAR(cost.decode_seconds(load) / machine.seconds(load), 2, 0.1);
}

TEST(StepCost, OneSlowStepChangesLittle) {
  const Machine machine;
  StepCost cost;
  teach(cost, machine, 0);
  const StepLoad load = rows(8, 500);
  cost.observe(load, 100 * machine.seconds(load));
  EXPECT_LT(cost.decode_seconds(load) / machine.seconds(load), 1.5);
}

TEST(StepCost, StepsThatSeemToTakeNoTimeChangeLittle) {
  const Machine machine;
  StepCost cost;
  teach(cost, machine, 0);
  const StepLoad load = rows(8, 500);
  for (int i = 0; i < 500; ++i)
    cost.observe(load, (i % 10 == 5 ? 0.02 : 1) * machine.seconds(load));
  EXPECT_NEAR(cost.decode_seconds(load) / machine.seconds(load), 1, 0.3);
}

// Rows and short chunks are all that is seen for a while, as where prompts are cached.
TEST(StepCost, WhatAChunkCostsHoweverShortIsNotChargedByTheToken) {
  const Machine gpu{
      .base = 1e-3, .row = 5e-5, .row_context = 0, .token = 7e-6, .context = 3e-9, .chunk = 0};
  constexpr double kChunkBase = 5e-3;
  StepCost cost(true), without(false);
  const auto observe = [&](const StepLoad& load) {
    const double seconds = gpu.seconds(load) + (load.prompt_tokens > 0 ? kChunkBase : 0);
    cost.observe(load, seconds);
    without.observe(load, seconds);
  };
  for (int64_t i = 0; i < 400; ++i) {
    StepLoad load = rows(16, 300);
    if (i % 4 == 0) load.add_chunk(i * 37 % 900, 10 + i % 50);
    observe(load);
  }
  EXPECT_NEAR(cost.chunk_base_seconds() / kChunkBase, 0.9, 0.15);
  EXPECT_EQ(without.chunk_base_seconds(), 0);
  StepLoad load;
  load.add_chunk(0, 1000);
  const double tokens = gpu.seconds(load);
  EXPECT_LT(cost.chunk_seconds(0, 1000), 4 * tokens);
  EXPECT_GT(without.chunk_seconds(0, 1000), 8 * tokens);
}

TEST(StepCost, KnowsNothingBeforeTheFirstStep) {
  StepCost cost;
  EXPECT_EQ(cost.decode_seconds(rows(3, 10)), 0);
  EXPECT_EQ(cost.chunk_within(1.0, 0), 0);
  cost.observe({}, 1.0);
  EXPECT_EQ(cost.chunk_within(1.0, 0), 0);
}

}  // namespace
}  // namespace quire::engine
