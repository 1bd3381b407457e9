#include "ops/paged_attention/attention_cuda_choice.h"

#include <gtest/gtest.h>

#include <string>

#include "ops/paged_attention/attention_choice_cases.h"

namespace quire::ops {
namespace {

using enum AttentionCudaKernel;

constexpr CudaTraits kHopper = {.is_hopper = true, .block_memory = kHopperBlockMemory};
constexpr CudaTraits kPlainTier = {.is_hopper = false, .block_memory = size_t{98} << 10};

AttentionCudaChoice choice_of(const testing::AttentionChoiceCase& c, const CudaTraits& traits,
                              bool wide = true) {
  const BatchLayout layout = testing::layout_of(c);
  AttentionCudaBatch batch;
  batch.num_tokens = layout.num_tokens;
  batch.num_sequences = layout.num_sequences;
  if (has_tensor_core_attention(c.params, traits.block_memory)) {
    const AttentionCudaPlan plan =
        plan_attention_cuda(c.params, layout, {.block_memory = traits.block_memory});
    batch.few.max_count = static_cast<int64_t>(plan.few.size());
    batch.many.max_count = static_cast<int64_t>(plan.many.size());
  }
  return choose_attention_cuda(c.params, batch, wide, traits);
}

std::string log_name(const AttentionCudaChoice& choice) {
  const char* name = kernel_log_name(choice);
  return name ? name : "none";
}

std::string text(const AttentionCudaChoice& choice) {
  return std::to_string(static_cast<int>(choice.few)) + " and " +
         std::to_string(static_cast<int>(choice.many));
}

TEST(AttentionCudaChoice, IsAsListed) {
  for (const auto& c : testing::attention_choices()) {
    EXPECT_EQ(text(choice_of(c, kHopper)), text(c.hopper)) << c.name;
    EXPECT_EQ(text(choice_of(c, kPlainTier)), text(c.plain)) << c.name;
  }
}

// Rows that do not begin at multiples of 16 bytes are not for copies by tiles.
TEST(AttentionCudaChoice, OfOddAddressesHasNoneOfHopper) {
  for (const auto& c : testing::attention_choices()) {
    const AttentionCudaChoice choice = choice_of(c, kHopper, /*wide=*/false);
    EXPECT_NE(choice.few, kShared) << c.name;
    EXPECT_NE(choice.many, kWgmmaPrefill) << c.name;
  }
}

TEST(AttentionCudaChoice, HasNames) {
  EXPECT_EQ(log_name({}), "none");
  EXPECT_EQ(log_name({kPlain, kPlain}), "cuda_plain");
  EXPECT_EQ(log_name({kTiles, kNone}), "cuda_mma");
  EXPECT_EQ(log_name({kTilesOf128, kPrefill}), "cuda_mma");
  EXPECT_EQ(log_name({kShared, kNone}), "cuda_sm90");
  EXPECT_EQ(log_name({kNone, kWgmmaPrefill}), "cuda_sm90");
  EXPECT_EQ(log_name({kShared, kWgmmaPrefill}), "cuda_sm90");
  EXPECT_EQ(log_name({kTilesOf128, kWgmmaPrefill}), "cuda_mma_sm90");
  EXPECT_EQ(log_name({kShared, kTiles}), "cuda_mma_sm90");
}

}  // namespace
}  // namespace quire::ops
