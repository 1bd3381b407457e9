// Blocks before all that a step's tokens see are given back: their table entries are kNoBlock, and
// the blocks belong to others. No kernel may read them.
#include "ops/paged_attention/attention_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// In place of the blocks that nobody sees: none, or one of NaNs.
BatchLayoutPtr without_unseen(const BatchLayout& layout, int64_t window, int32_t instead,
                              int64_t& replaced) {
  auto given_back = std::make_shared<BatchLayout>(layout);
  for (int64_t s = 0; s < layout.num_sequences; ++s) {
    const int64_t first = layout.positions[layout.cu_seqlens[s]] - window;
    for (int64_t i = 0; (i + 1) * layout.block_size <= first; ++i, ++replaced)
      given_back->blocks[layout.block_offsets[s] + i] = instead;
  }
  return given_back;
}

// The block that no sequence of the step has.
int32_t spare_block(const Step& step) {
  std::vector<bool> is_used(static_cast<size_t>(step.kv.k.shape(0)));
  for (const int32_t block : step.layout->blocks) is_used[block] = true;
  return static_cast<int32_t>(std::ranges::find(is_used, false) - is_used.begin());
}

void expect_unread(const Sequences& sequences, AttentionParams params, const Paging& paging,
                   int64_t window, const std::string& what) {
  params.window_left = window;
  Step step = sequences.step(kMixed, paging);
  const BatchLayoutPtr whole = step.layout;
  for (const int threads : {1, 5}) {
    if (on_emulator() && threads > 1) continue;
    step.layout = whole;
    const mx::array expected = attend(make_context(threads), step, params);
    for (const int32_t instead : {kNoBlock, spare_block(step)}) {
      int64_t replaced = 0;
      step.layout = without_unseen(*whole, window, instead, replaced);
      ASSERT_GT(replaced, 0);
      const Context context = make_context(threads);
      EXPECT_TRUE(same_bits(attend(context, step, params), expected))
          << what << ", window " << window << ", block size " << paging.block_size << ", block "
          << instead;
      EXPECT_TRUE(same_bits(attend_with_lse(context, step, params).out, expected)) << what;
    }
  }
}

TEST(PagedAttentionWindow, GivenBackBlocksAreNotRead) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const KvStorage storage : {KvStorage::kAuto, KvStorage::kInt8, KvStorage::kFp8})
        for (const int group : {1, 3, 12}) {
          if (group != 3 && !takes_all_groups(isa, dtype)) continue;
          if (on_emulator() && storage != KvStorage::kAuto && dtype != mx::bfloat16) continue;
          const Heads heads{.heads = 2 * group, .kv_heads = 2, .dim = 64, .value_dim = 64};
          const Sequences sequences(heads, dtype, kMixedLengths, 7, storage);
          const std::string what = isa + " " + std::to_string(static_cast<int>(storage)) + " " +
                                   dtype_name(dtype) + " group " + std::to_string(group);
          for (const int64_t window : {0, 15, 77, 200})
            expect_unread(sequences, plain(heads),
                          {.block_size = window == 77 ? 8 : 16, .order = 3}, window, what);
        }
  }
}

// The reference has zeros there.
TEST(PagedAttentionWindow, TheReferenceReadsNoneEither) {
  const Heads heads;
  const Sequences sequences(heads, mx::float32, kMixedLengths);
  AttentionParams params = plain(heads);
  params.window_left = 31;
  Step step = sequences.step(kMixed, {.order = 3});
  Context context = make_context(1);
  const mx::array kernels = attend(context, step, params);
  int64_t replaced = 0;
  step.layout = without_unseen(*step.layout, 31, kNoBlock, replaced);
  ASSERT_GT(replaced, 0);
  context.use_reference = true;
  const mx::array reference = attend(context, step, params);
  EXPECT_TRUE(mx::allclose(kernels, reference, 1e-4, 1e-5).item<bool>());
}

}  // namespace
}  // namespace quire::ops
