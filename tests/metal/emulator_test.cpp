#include <gmock/gmock.h>

#include <numeric>

#include "harness.h"

// The emulator finds mistakes: each kernel of faults.metal with one mistake is caught.
namespace quire::emulator::testing {
namespace {

using ::testing::HasSubstr;

enum Mistake {
  kNone,
  kNoBarrier,
  kUninitialised,
  kLaneOff,
  kSomeBarriers,
  kReturnsEarly,
  kTwoBarriers,
  kBeyondGroup,
  kBeyondBuffer,
  kInactiveLane,
  kRace,
  kPartedLanes,
  kMisaligned,
  kUninitialisedOwn,
  kOverflow,
  kWrongFlags
};

struct Reverse {
  explicit Reverse(int mistake) {
    std::iota(in.begin(), in.end(), 1.0f);
    launch = {.kernel = "reverse",
              .constants = {{0, Constant::of(mistake)}},
              .buffers = {{0, buffer_of(in)}, {1, buffer_of(out)}, {2, buffer_of(count)}},
              .groups = {3},
              .threads = {64}};
  }
  std::string fault() {
    try {
      run_in_all_orders(launch);
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "none";
  }
  std::vector<float> in = std::vector<float>(192), out = std::vector<float>(192, NAN);
  uint32_t count = 192;
  Launch launch;
};

TEST(MetalEmulator, RunsACorrectKernel) {
  Reverse reverse(kNone);
  EXPECT_EQ(reverse.fault(), "none");
  for (int g = 0; g < 3; ++g)
    for (int i = 0; i < 64; ++i) {
      float sum = 0;
      for (int lane = 0; lane < 32; ++lane) sum += reverse.in[g * 64 + 63 - (i / 32 * 32 + lane)];
      EXPECT_EQ(reverse.out[g * 64 + i], reverse.in[g * 64 + 63 - i] + sum);
    }
}

TEST(MetalEmulator, AMissingBarrierChangesBits) {
  EXPECT_THAT(Reverse(kNoBarrier).fault(), HasSubstr("buffer 1 has other bits with threads"));
}

TEST(MetalEmulator, AWordThatNobodyWroteChangesBits) {
  EXPECT_THAT(Reverse(kUninitialised).fault(), HasSubstr("buffer 1 has other bits with threads"));
}

// A variable of the thread's own has a fixed pattern, which is a NaN.
TEST(MetalEmulator, AVariableThatNobodyWroteIsNaN) {
  Reverse reverse(kUninitialisedOwn);
  run(reverse.launch);
  EXPECT_TRUE(std::isnan(reverse.out[5]));
}

TEST(MetalEmulator, GroupsThatWriteTheSamePlaceChangeBits) {
  EXPECT_THAT(Reverse(kRace).fault(), HasSubstr("buffer 1 has other bits with threads"));
}

TEST(MetalEmulator, ALaneBeyondTheSimdgroupIsNamed) {
  EXPECT_THAT(Reverse(kLaneOff).fault(),
              HasSubstr("is read and takes no part at tests/metal/faults/faults.metal:42"));
}

TEST(MetalEmulator, ALaneThatHasReturnedIsNotRead) {
  EXPECT_THAT(Reverse(kInactiveLane).fault(), HasSubstr("lane 3 is read and takes no part"));
}

TEST(MetalEmulator, ABarrierThatSomeThreadsDoNotReachNamesTheLine) {
  EXPECT_THAT(Reverse(kSomeBarriers).fault(),
              HasSubstr("50 at threadgroup_barrier at tests/metal/faults/faults.metal:24"));
  EXPECT_THAT(Reverse(kReturnsEarly).fault(),
              HasSubstr("not all threads come to threadgroup_barrier"));
}

TEST(MetalEmulator, ABarrierMustOrderWhatWasWritten) {
  EXPECT_THAT(Reverse(kWrongFlags).fault(),
              HasSubstr("written before a barrier that does not order it"));
}

TEST(MetalEmulator, TwoBarriersAreNotOne) {
  EXPECT_THAT(Reverse(kTwoBarriers).fault(),
              HasSubstr("threads part: some are at threadgroup_barrier"));
}

TEST(MetalEmulator, LanesThatPartAreNamed) {
  EXPECT_THAT(Reverse(kPartedLanes).fault(), HasSubstr("threads part: some are at simd_"));
}

using MetalEmulatorDeathTest = ::testing::Test;

TEST(MetalEmulatorDeathTest, MemoryBeyondIsCaught) {
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_DEATH(Reverse(kBeyondGroup).fault(), "global-buffer-overflow");
  EXPECT_DEATH(Reverse(kBeyondBuffer).fault(), "heap-buffer-overflow");
}

TEST(MetalEmulatorDeathTest, UndefinedArithmeticAndAlignmentAreCaught) {
  GTEST_FLAG_SET(death_test_style, "fast");
  EXPECT_DEATH(Reverse(kMisaligned).fault(), "misaligned address");
  EXPECT_DEATH(Reverse(kOverflow).fault(), "signed integer overflow");
}

TEST(MetalEmulator, ChecksWhatALaunchGives) {
  const auto fault_of = [](auto change) {
    Reverse reverse(kNone);
    change(reverse.launch);
    return reverse.fault();
  };
  EXPECT_THAT(fault_of([](Launch& l) { l.kernel = "revers"; }), HasSubstr("no kernel revers"));
  EXPECT_THAT(fault_of([](Launch& l) { l.buffers.erase(1); }), HasSubstr("buffer 1 is not bound"));
  EXPECT_THAT(fault_of([](Launch& l) { l.buffers[7] = l.buffers[0]; }),
              HasSubstr("there is no buffer 7"));
  EXPECT_THAT(fault_of([](Launch& l) { l.buffers[2].bytes = 2; }), HasSubstr("has 2 bytes, not 4"));
  EXPECT_THAT(fault_of([](Launch& l) {
                l.buffers[0].data = static_cast<char*>(l.buffers[0].data) + 1;
                --l.buffers[0].bytes;
              }),
              HasSubstr("buffer 0 is not aligned to 4"));
  EXPECT_THAT(fault_of([](Launch& l) { l.constants.clear(); }), HasSubstr("fault is not set"));
  EXPECT_THAT(fault_of([](Launch& l) { l.constants[0] = Constant::of(true); }),
              HasSubstr("fault has another type"));
  EXPECT_THAT(fault_of([](Launch& l) { l.threads = {1025}; }), HasSubstr("1025 threads"));
}

Launch multiply(std::vector<uint8_t>& a, std::vector<uint8_t>& b, std::vector<float>& out,
                size_t tile) {
  return {.kernel = "multiply",
          .constants = {{0, Constant::of(0)}},
          .buffers = {{0, buffer_of(a)}, {1, buffer_of(b)}, {2, buffer_of(out)}},
          .threadgroup_bytes = {{0, tile}},
          .groups = {8, 8},
          .threads = {32}};
}

TEST(MetalEmulator, MultipliesMatrices) {
  const auto a = random_floats(64 * 64, FloatType::kF16, 1);
  const auto b = random_floats(64 * 64, FloatType::kF16, 2);
  auto a_bytes = encode(a, FloatType::kF16), b_bytes = encode(b, FloatType::kF16);
  std::vector<float> out(64 * 64, NAN);
  run_in_all_orders(multiply(a_bytes, b_bytes, out, 128));
  std::vector<double> want(64 * 64, 0.0);
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < 64; ++j)
      for (int k = 0; k < 64; ++k) want[i * 64 + j] += double{a[i * 64 + k]} * b[k * 64 + j];
  expect_near(out, want, 1e-5, 1.0);
}

TEST(MetalEmulator, ThreadgroupMemoryIsAMultipleOf16Bytes) {
  std::vector<uint8_t> a(8192), b(8192);
  std::vector<float> out(4096);
  EXPECT_THROW(run(multiply(a, b, out, 130)), Fault);
  EXPECT_THROW(run(multiply(a, b, out, 48 << 10)), Fault);
}

TEST(MetalEmulator, HasVectorsAndPlacesInThreeDimensions) {
  const auto in = random_floats(3 * 120, FloatType::kF32, 3);
  for (const FloatType type : {FloatType::kF16, FloatType::kBf16}) {
    auto given = in;
    auto out = unwritten(120, type);
    run_in_all_orders({.kernel = std::string("vectors_") + name(type),
                       .constants = {{0, Constant::of(0)}},
                       .buffers = {{0, buffer_of(given)}, {1, buffer_of(out)}},
                       .groups = {2, 3, 2},
                       .threads = {5, 1, 2}});
    const auto got = decode(out, type);
    for (int i = 0; i < 120; ++i) {
      const float x = in[3 * i], y = in[3 * i + 1], z = in[3 * i + 2];
      EXPECT_EQ(got[i], ops::round_through((z + x) * (y + 0.5f) + 1.0f, type)) << i;
    }
  }
}

}  // namespace
}  // namespace quire::emulator::testing
