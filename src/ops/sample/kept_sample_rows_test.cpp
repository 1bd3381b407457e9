// What a recorded step finds of its sampler's rows in memory that keeps those of earlier steps.
#include "ops/cuda/kept_sample_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace quire::ops {
namespace {

constexpr size_t kRows = 6, kTail = 4096, kCapacity = 16384;
const StepBlockRange kRange{.device = nullptr, .tail = kTail, .capacity = kCapacity};

// The fixed part and the tail, as the device is sent them.
struct Memory {
  alignas(64) std::byte bytes[kCapacity];
  KeptSampleRows kept;
  size_t tail_bytes = 0;

  SampleCudaRow* rows() { return reinterpret_cast<SampleCudaRow*>(bytes); }
  void write(const std::vector<SampleRow>& from, bool is_kept) {
    std::memset(bytes + kTail, 0, kCapacity - kTail);  // there are gaps between the lists
    StepWriter writer({.memory = bytes, .piece = 0, .is_kept = is_kept}, kRange);
    SampleCudaLists lists;
    kept.write(from, rows(), lists, writer);
    tail_bytes = writer.tail_bytes();
    ASSERT_TRUE(writer.fits());
  }
};

// Where an empty list begins says nothing.
SampleCudaRow plain(SampleCudaRow row) {
  if (row.history_begin == row.history_end) row.history_begin = row.history_end = 0;
  if (row.bias_begin == row.bias_end) row.bias_begin = row.bias_end = 0;
  if (row.banned_begin == row.banned_end) row.banned_begin = row.banned_end = 0;
  if (row.after_begin == row.after_end) row.after_begin = row.after_end = 0;
  return row;
}

void expect_same(Memory& a, Memory& b) {
  for (size_t r = 0; r < kRows; ++r) {
    const SampleCudaRow of_a = plain(a.rows()[r]), of_b = plain(b.rows()[r]);
    ASSERT_EQ(std::memcmp(&of_a, &of_b, sizeof of_a), 0) << "row " << r;
  }
  ASSERT_EQ(a.tail_bytes, b.tail_bytes);
  ASSERT_EQ(std::memcmp(a.bytes + kTail, b.bytes + kTail, a.tail_bytes), 0);
}

SampleRow random_row(std::mt19937& random, uint64_t constant) {
  SampleRow row{.temperature = 0.5f, .top_k = 3, .seed = constant, .constant = constant};
  if (constant % 3 == 1) row.logit_bias = {{static_cast<int32_t>(constant), 0.5f}, {2, 1.0f}};
  if (random() % 4 == 0) {
    row.constant = 0;
    row.history = {{.token = static_cast<int32_t>(random() % 100), .in_output = 2}};
    row.banned = {1, 2, 3};
    row.pending_row = 1;
  }
  return row;
}

// As if all were written anew for each step.
TEST(KeptSampleRows, AreThoseOfEveryStep) {
  std::mt19937 random(5);
  std::vector<SampleRow> rows(kRows);
  const auto kept = std::make_unique<Memory>(), anew = std::make_unique<Memory>();
  for (int step = 0; step < 500; ++step) {
    for (SampleRow& row : rows) {
      if (step == 0 || random() % 16 == 0) row = random_row(random, 1 + random() % 50);
      row.position = step;
    }
    const bool is_kept = step > 0 && random() % 32 != 0;
    if (!is_kept) std::memset(kept->bytes, 0xEE, kCapacity);
    kept->write(rows, is_kept);
    std::memset(anew->bytes, 0, kCapacity);
    anew->write(rows, false);
    ASSERT_NO_FATAL_FAILURE(expect_same(*kept, *anew)) << "step " << step;
  }
}

TEST(KeptSampleRows, OfConstantOnesOnlyThePositionIsWritten) {
  const auto memory = std::make_unique<Memory>();
  std::vector<SampleRow> rows(kRows, SampleRow{.position = 7, .constant = 9});
  memory->write(rows, false);
  memory->rows()[2].top_k = 77;
  for (SampleRow& row : rows) row.position = 8;
  memory->write(rows, true);
  EXPECT_EQ(memory->rows()[2].top_k, 77);
  EXPECT_EQ(memory->rows()[2].position, 8);
  rows[2].constant = 10;
  memory->write(rows, true);
  EXPECT_EQ(memory->rows()[2].top_k, 0);
}

}  // namespace
}  // namespace quire::ops
