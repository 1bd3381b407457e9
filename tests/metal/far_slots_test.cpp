// Slots and blocks behind 2^32 elements of a pool: what a kernel computes, and where it writes, is
// what it is with a small pool, so far behind. (The delta rule's slots: gated_delta_rule_test.cpp
// of the op.)
#include <sys/mman.h>

#include "harness.h"
#include "launch.h"
#include "ops/causal_conv1d/causal_conv1d_metal.h"
#include "ops/copy_slots/copy_slots_metal.h"
#include "ops/kv_write/kv_write_metal.h"
#include "ops/paged_attention/paged_attention_metal.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_metal.h"
#include "recurrent_step.h"

namespace quire::emulator::testing {
namespace {

using namespace quire::ops;

constexpr FloatType kType = FloatType::kF16;

// A pool of `parts` parts with so many elements of 2 bytes each, whose last ones are those of a
// small one. Only what is touched costs memory.
class FarPool {
 public:
  FarPool(int64_t elements_of_part, const std::vector<uint8_t>& last)
      : first((int64_t{1} << 32) / elements_of_part + 1),
        bytes_(static_cast<size_t>(2 * first * elements_of_part) + last.size()),
        size_(last.size()) {
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    std::memcpy(begin_of_last(), last.data(), last.size());
  }
  ~FarPool() { ::munmap(memory_, bytes_); }
  FarPool(const FarPool&) = delete;
  FarPool& operator=(const FarPool&) = delete;

  Buffer buffer() const { return {memory_, bytes_}; }
  std::vector<uint8_t> last() const { return {begin_of_last(), begin_of_last() + size_}; }

  const int64_t first;  // of the last parts

 private:
  uint8_t* begin_of_last() const { return static_cast<uint8_t*>(memory_) + bytes_ - size_; }

  size_t bytes_, size_;
  void* memory_ = nullptr;
};

// Rows of a small pool.
std::vector<uint8_t> rows(int64_t count, int64_t elements, uint32_t seed) {
  return encode(random_floats(static_cast<size_t>(count * elements), kType, seed), kType);
}

TEST(MetalFarSlots, OfKvWrite) {
  constexpr int64_t kRow = 64;
  auto keys = rows(2, kRow, 1), values = rows(2, kRow, 2), near_keys = rows(5, kRow, 3),
       near_values = rows(5, kRow, 4);
  const FarPool far_keys(kRow, near_keys), far_values(kRow, near_values);
  KvWriteMetal write = kv_write_metal(2, 2 * kRow, 2 * kRow, /*alignment=*/2);
  const auto run_with = [&](int64_t first, Buffer k_pool, Buffer v_pool) {
    std::vector<int64_t> slots = {first + 3, first};
    run(launch_of(write.call, {{kKvWriteParams, buffer_of(write.params)},
                               {kKvWriteSlots, buffer_of(slots)},
                               {kKvWriteKeys, buffer_of(keys)},
                               {kKvWriteValues, buffer_of(values)},
                               {kKvWriteKeyPool, k_pool},
                               {kKvWriteValuePool, v_pool}}));
  };
  run_with(0, buffer_of(near_keys), buffer_of(near_values));
  run_with(far_keys.first, far_keys.buffer(), far_values.buffer());
  EXPECT_TRUE(far_keys.last() == near_keys);
  EXPECT_TRUE(far_values.last() == near_values);
}

TEST(MetalFarSlots, OfQkNormRopeKvWrite) {
  constexpr int kDim = 32;
  auto qkv = rows(2, 4 * kDim, 1), near_keys = rows(5, kDim, 2), near_values = rows(5, kDim, 3);
  const FarPool far_keys(kDim, near_keys), far_values(kDim, near_values);
  std::vector<int32_t> positions = {1, 2};
  auto cos_sin = random_floats(3 * kDim, FloatType::kF32, 4);
  QkNormRopeKvWriteMetal write = qk_norm_rope_kv_write_metal({.type = kType,
                                                              .kv_type = kv_type_of(kType),
                                                              .heads = 2,
                                                              .kv_heads = 1,
                                                              .head_dim = kDim,
                                                              .row = 4 * kDim,
                                                              .rotary_dim = kDim},
                                                             2);
  const auto run_with = [&](int64_t first, Buffer k_pool, Buffer v_pool) {
    std::vector<int64_t> slots = {first + 4, first + 1};
    auto q = unwritten(4 * kDim, kType);
    run(launch_of(write.call, {{kQkRopeParams, buffer_of(write.params)},
                               {kQkRopePositions, buffer_of(positions)},
                               {kQkRopeSlots, buffer_of(slots)},
                               {kQkRopeCosSin, buffer_of(cos_sin)},
                               {kQkRopeQkv, buffer_of(qkv)},
                               {kQkRopeQ, buffer_of(q)},
                               {kQkRopeKeyPool, k_pool},
                               {kQkRopeValuePool, v_pool}}));
  };
  run_with(0, buffer_of(near_keys), buffer_of(near_values));
  run_with(far_keys.first, far_keys.buffer(), far_values.buffer());
  EXPECT_TRUE(far_keys.last() == near_keys);
  EXPECT_TRUE(far_values.last() == near_values);
}

TEST(MetalFarSlots, OfCopySlots) {
  constexpr int64_t kSlot = 1024;
  auto near_pool = rows(5, kSlot, 1);
  const FarPool far_pool(kSlot, near_pool);
  CopySlotsMetal copy = copy_slots_metal(2, 2 * kSlot, /*alignment=*/2);
  const auto run_with = [&](int64_t first, Buffer pool) {
    const auto at = static_cast<int32_t>(first);
    std::vector<int32_t> pairs = {at + 1, at + 4, at + 3, at};
    run(launch_of(copy.call, {{kCopySlotsParams, buffer_of(copy.params)},
                              {kCopySlotsPairs, buffer_of(pairs)},
                              {kCopySlotsPool, pool}}));
  };
  run_with(0, buffer_of(near_pool));
  run_with(far_pool.first, far_pool.buffer());
  EXPECT_TRUE(far_pool.last() == near_pool);
}

TEST(MetalFarSlots, OfCausalConv1d) {
  constexpr int kChannels = 32, kTaps = 4;
  constexpr int64_t kSlot = (kTaps - 1) * kChannels;
  auto x = rows(3, kChannels, 1), near_state = rows(5, kSlot, 2);
  const FarPool far_state(kSlot, near_state);
  auto weight = random_floats(kTaps * kChannels, FloatType::kF32, 3);
  const auto run_with = [&](int64_t first, Buffer state) {
    RecurrentStep step({{3, 7, static_cast<int>(first) + 2}});
    CausalConv1dMetal conv = causal_conv1d_metal(
        {.type = kType, .kernel = kTaps, .channels = kChannels, .row = kChannels}, 1, step.longest);
    auto y = unwritten(3 * kChannels, kType);
    run(launch_of(conv.call, {{kConvParams, buffer_of(conv.params)},
                              {kConvCuSeqlens, buffer_of(step.cu_seqlens)},
                              {kConvPositions, buffer_of(step.positions)},
                              {kConvStateSlots, buffer_of(step.slots)},
                              {kConvX, buffer_of(x)},
                              {kConvWeight, buffer_of(weight)},
                              {kConvY, buffer_of(y)},
                              {kConvState, state}}));
    return y;
  };
  const auto near_y = run_with(0, buffer_of(near_state));
  EXPECT_TRUE(run_with(far_state.first, far_state.buffer()) == near_y);
  EXPECT_TRUE(far_state.last() == near_state);
}

// A decode token with its keys in far blocks, and a prompt's.
TEST(MetalFarSlots, OfPagedAttention) {
  constexpr int kDim = 64, kBlock = 16, kHeads = 2;
  constexpr int64_t kRow = kBlock * kDim;
  auto near_keys = rows(6, kRow, 1), near_values = rows(6, kRow, 2);
  const FarPool far_keys(kRow, near_keys), far_values(kRow, near_values);
  for (const int tokens : {1, 20}) {
    SCOPED_TRACE(tokens);
    constexpr int kContext = 60;
    auto q = rows(tokens, kHeads * kDim, 3);
    const AttentionKernelParams params = {.q_type = kType,
                                          .kv_type = kv_type_of(kType),
                                          .heads = kHeads,
                                          .kv_heads = 1,
                                          .key_dim = kDim,
                                          .value_dim = kDim,
                                          .block_size = kBlock,
                                          .window_left = -1,
                                          .exponent_scale = 0.18f};
    const auto run_with = [&](int64_t first, Buffer k, Buffer v) {
      BatchLayout layout;
      layout.num_sequences = 1;
      layout.num_tokens = tokens;
      layout.block_size = kBlock;
      layout.cu_seqlens = {0, tokens};
      layout.block_offsets = {0, 4};
      layout.seq_lens = {kContext};
      for (const int block : {4, 1, 5, 0})
        layout.blocks.push_back(static_cast<int32_t>(first + block));
      for (int t = 0; t < tokens; ++t) layout.positions.push_back(kContext - tokens + t);
      AttentionMetalPlan plan = plan_attention_metal(params, layout);
      EXPECT_EQ(plan.merges.size(), 0u);
      EXPECT_EQ(plan.few.empty(), tokens > 1);
      AttentionMetal attention = attention_metal(params, layout, plan);
      auto out = unwritten(size_t(tokens) * kHeads * kDim, kType);
      std::vector<float> partials(1);
      const bool few = !plan.few.empty();
      run(launch_of(few ? attention.few : attention.many,
                    {{kAttentionParams, buffer_of(attention.params)},
                     {kAttentionItems, buffer_of(few ? plan.few : plan.many)},
                     {kAttentionBlocks, buffer_of(layout.blocks)},
                     {kAttentionQ, buffer_of(q)},
                     {kAttentionK, k},
                     {kAttentionV, v},
                     {kAttentionPartials, buffer_of(partials)},
                     {kAttentionOut, buffer_of(out)}}));
      return out;
    };
    const auto near_out = run_with(0, buffer_of(near_keys), buffer_of(near_values));
    EXPECT_TRUE(run_with(far_keys.first, far_keys.buffer(), far_values.buffer()) == near_out);
  }
}

}  // namespace
}  // namespace quire::emulator::testing
