// A pool of 100 GB, on a GPU that has as much.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ops/kv_write/kv_write.h"
#include "ops/paged_attention/paged_attention.h"
#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace testing;

constexpr int kBlock = 16, kKvHeads = 8, kHeads = 16, kDim = 128, kTokens = 600;

// One sequence whose table is the last blocks of a pool.
BatchLayoutPtr layout_at_the_end(int64_t num_blocks) {
  auto layout = std::make_shared<BatchLayout>();
  const int blocks = (kTokens + kBlock - 1) / kBlock;
  layout->num_tokens = kTokens;
  layout->num_sequences = 1;
  layout->block_size = kBlock;
  for (int b = 0; b < blocks; ++b)
    layout->blocks.push_back(static_cast<int32_t>(num_blocks - 1 - b));
  for (int t = 0; t < kTokens; ++t) {
    layout->positions.push_back(t);
    layout->slot_mapping.push_back(int64_t{layout->blocks[t / kBlock]} * kBlock + t % kBlock);
  }
  layout->cu_seqlens = {0, kTokens};
  layout->seq_lens = {kTokens};
  layout->block_offsets = {0, blocks};
  return layout;
}

mx::array attend(const Context& context, int64_t num_blocks) {
  const PagedKv pool = make_paged_kv(num_blocks, kBlock, kKvHeads, kDim, mx::bfloat16,
                                     KvStorage::kAuto, 0, context.device.get());
  const auto layout = layout_at_the_end(num_blocks);
  const mx::array k = random_array({kTokens, kKvHeads, kDim}, mx::bfloat16, 1);
  const mx::array v = random_array({kTokens, kKvHeads, kDim}, mx::bfloat16, 2);
  const mx::array q = random_array({kTokens, kHeads, kDim}, mx::bfloat16, 3);
  const PagedKv written = kv_write(context, k, v, pool, layout);
  const mx::array out = paged_attention(context, q, written, layout, {.scale = 0.088f});
  mx::eval(out);
  return out;
}

TEST(PagedAttention, APoolMayHave100GB) {
  if (!on_cuda()) GTEST_SKIP() << "needs a GPU";
  const Context context = make_context(1);
  constexpr int64_t kBytes = int64_t{100} << 30,
                    kBlockBytes = int64_t{2} * kBlock * kKvHeads * kDim * 2;
  if (static_cast<int64_t>(*context.device->free_bytes()) < kBytes + (int64_t{2} << 30))
    GTEST_SKIP() << "needs a GPU with 102 GiB free";
  const mx::array small = attend(context, 40);
  EXPECT_TRUE(same_bits(attend(context, kBytes / kBlockBytes), small));
}

}  // namespace
}  // namespace quire::ops
