#include "ops/copy_slots/copy_slots.h"

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

RecurrentState filled(int slots, int heads, int v_dim, int k_dim, int conv_dim, mx::Dtype dtype) {
  return {random_array({slots, heads, v_dim, k_dim}, mx::float32, 1),
          random_array({slots, 3, conv_dim}, dtype, 2)};
}

SlotCopies copies_of(std::vector<SlotCopy> copies) {
  return std::make_shared<const std::vector<SlotCopy>>(std::move(copies));
}

// The bytes that a pool must have afterwards.
std::vector<uint8_t> copied(const mx::array& pool, const SlotCopies& copies) {
  const std::vector<uint8_t> before = to_bytes(pool);
  std::vector<uint8_t> after = before;
  const size_t slot = before.size() / static_cast<size_t>(pool.shape(0));
  for (const SlotCopy& copy : *copies)
    std::copy_n(before.begin() + static_cast<ptrdiff_t>(copy.from * slot), slot,
                after.begin() + static_cast<ptrdiff_t>(copy.to * slot));
  return after;
}

TEST(CopySlots, CopiesItsSlotsAndNothingElse) {
  const auto lists = {copies_of({{0, 5}}), copies_of({{4, 0}, {4, 1}, {3, 2}}), copies_of({})};
  for (const mx::Dtype dtype : float_dtypes()) {
    for (const int k_dim : {1, 16, 128}) {
      for (const SlotCopies& copies : lists) {
        // Slots that are no multiple of a piece, and less than one.
        const RecurrentState pool = filled(6, 3, 70, k_dim, 18, dtype);
        const auto recurrent = copied(pool.recurrent, copies), conv = copied(pool.conv, copies);
        const void* address = pool.recurrent.data<float>();
        const Context context = make_context(2);
        const RecurrentState after = copy_slots(context, pool, copies);
        EXPECT_TRUE(to_bytes(after.recurrent) == recurrent) << dtype_name(dtype);
        EXPECT_TRUE(to_bytes(after.conv) == conv) << dtype_name(dtype);
        EXPECT_EQ(after.recurrent.data<float>(), address);
        EXPECT_EQ(context.kernels->count("copy_slots", context.device->name()), 1);
      }
    }
  }
}

// A copy through a chain of handles reads what the copy before it wrote.
TEST(CopySlots, HandlesOrderTheCopies) {
  const RecurrentState pool = filled(4, 2, 64, 64, 32, mx::bfloat16);
  const auto first = to_bytes(mx::slice(pool.recurrent, {0, 0, 0, 0}, {1, 2, 64, 64}));
  const Context context = make_context(2);
  RecurrentState state = pool;
  for (int32_t slot = 0; slot < 3; ++slot)
    state = copy_slots(context, state, copies_of({{slot, slot + 1}}));
  EXPECT_TRUE(to_bytes(mx::slice(state.recurrent, {3, 0, 0, 0}, {4, 2, 64, 64})) == first);
}

TEST(CopySlots, SaysWhichSlotIsWrong) {
  const RecurrentState pool = filled(4, 1, 2, 2, 2, mx::float32);
  const auto refused = [&](std::vector<SlotCopy> copies, const std::string& why) {
    try {
      copy_slots(make_context(1), pool, copies_of(std::move(copies)));
      ADD_FAILURE() << "accepted: " << why;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(std::string(error.what()), "copy_slots: slot " + why);
    }
  };
  refused({{0, 4}}, "4 is not in a pool of 4");
  refused({{-1, 0}}, "-1 is not in a pool of 4");
  refused({{0, 2}, {1, 2}}, "2 is written twice");
  refused({{0, 1}, {1, 2}}, "1 is read and written");
  refused({{3, 3}}, "3 is read and written");
}

TEST(RecurrentStatePool, HasTheShapesOfItsSlotsAndRefusesEmptyOnes) {
  const RecurrentStateShape shape{
      .conv_dim = 24, .conv_kernel = 4, .v_heads = 2, .v_dim = 8, .k_dim = 16};
  const RecurrentState state = make_recurrent_state(5, shape, mx::bfloat16);
  EXPECT_EQ(state.recurrent.shape(), (mx::Shape{5, 2, 8, 16}));
  EXPECT_EQ(state.recurrent.dtype(), mx::float32);
  EXPECT_EQ(state.conv.shape(), (mx::Shape{5, 3, 24}));
  EXPECT_EQ(state.conv.dtype(), mx::bfloat16);
  EXPECT_EQ(5 * shape.recurrent_bytes(), static_cast<int64_t>(state.recurrent.nbytes()));
  EXPECT_EQ(5 * shape.conv_bytes(mx::bfloat16), static_cast<int64_t>(state.conv.nbytes()));
  EXPECT_THROW(make_recurrent_state(0, shape, mx::bfloat16), std::invalid_argument);
  EXPECT_THROW(make_recurrent_state(5, shape, mx::int32), std::invalid_argument);
  RecurrentStateShape no_conv = shape;
  no_conv.conv_kernel = 1;
  EXPECT_THROW(make_recurrent_state(5, no_conv, mx::bfloat16), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
