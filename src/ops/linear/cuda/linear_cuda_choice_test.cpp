#include "ops/linear/cuda/linear_cuda_choice.h"

#include <gtest/gtest.h>

#include <string>

#include "ops/linear/cuda/linear_choice_cases.h"

namespace quire::ops {
namespace {

using enum LinearCudaKernel;

constexpr CudaTraits kHopper = {.is_hopper = true, .block_memory = size_t{226} << 10};
constexpr CudaTraits kPlainTier = {.is_hopper = false, .block_memory = size_t{98} << 10};

LinearCudaChoice choice_of(const LinearCudaParams& p, const CudaTraits& traits) {
  return choose_linear_cuda(p, /*wide_x=*/p.layout.k % 8 == 0, traits);
}

std::string log_name(LinearCudaKernel kernel) {
  const char* name = kernel_log_name(kernel);
  return name ? name : "none";
}

TEST(LinearCudaChoice, IsAsListed) {
  for (const auto& c : testing::linear_choices()) {
    const LinearCudaParams p = {.layout = c.layout, .rows = c.rows};
    EXPECT_EQ(choice_of(p, kHopper).kernel, c.hopper) << c.name;
    EXPECT_EQ(choice_of(p, kPlainTier).kernel, c.plain) << c.name;
  }
}

TEST(LinearCudaChoice, HasNames) {
  EXPECT_EQ(log_name(kNone), "none");
  EXPECT_EQ(log_name(kPlain), "cuda_plain");
  EXPECT_EQ(log_name(kFewRows), "cuda_mma");
  EXPECT_EQ(log_name(kManyRows), "cuda_mma");
  EXPECT_EQ(log_name(kWgmma), "cuda_sm90");
}

// Experts' tiles are of few rows, however many there are.
TEST(LinearCudaChoice, OfExpertsIsForFewRows) {
  const LinearCudaTile tile = {};
  for (const CudaTraits& traits : {kHopper, kPlainTier})
    for (const int64_t rows : {1, 8, 9, 5000}) {
      for (const auto& [name, layout] : testing::quantised_layouts(FloatType::kBf16)) {
        const LinearCudaParams p = {.layout = layout, .rows = rows, .tiles = &tile};
        EXPECT_EQ(choice_of(p, traits).kernel, kFewRows) << name << ", " << rows;
      }
      const LinearCudaParams f32 = {
          .layout = {.n = 128, .k = 256, .type = FloatType::kF32}, .rows = rows, .tiles = &tile};
      EXPECT_EQ(choice_of(f32, traits).kernel, kPlain);
    }
}

// Norms are of the kernel for few rows, where few blocks repeat them.
TEST(LinearCudaChoice, NormsWhereFewBlocksWouldRepeatThem) {
  const float weight = 1;
  const auto of = [&](int64_t n, int64_t k, int64_t rows, const CudaTraits& traits) {
    return choice_of({.layout = {.n = n, .k = k, .type = FloatType::kBf16},
                      .rows = rows,
                      .norm_weight = &weight},
                     traits);
  };
  for (const CudaTraits& traits : {kHopper, kPlainTier}) {
    EXPECT_TRUE(of(1024, 1024, 1, traits).norms_in_blocks);
    EXPECT_TRUE(of(1024, 1024, 8, traits).norms_in_blocks);
    EXPECT_FALSE(of(1024, 1024, 9, traits).norms_in_blocks);
    EXPECT_TRUE(of(528 * 16, 2048, 2, traits).norms_in_blocks);
    EXPECT_FALSE(of(529 * 16, 2048, 2, traits).norms_in_blocks);
  }
  // Two long rows: bound by the weight, but a norm in each block would take longer.
  EXPECT_FALSE(of(4096, 4096, 2, kHopper).norms_in_blocks);
  EXPECT_EQ(of(4096, 4096, 2, kHopper).kernel, kFewRows);
  EXPECT_TRUE(of(4096, 4096, 1, kHopper).norms_in_blocks);
  EXPECT_TRUE(of(4096, 4096, 2, kPlainTier).norms_in_blocks);
}

}  // namespace
}  // namespace quire::ops
