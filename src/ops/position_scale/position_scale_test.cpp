#include "ops/position_scale/position_scale.h"

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

BatchLayoutPtr layout_at(std::vector<int32_t> positions) {
  auto layout = std::make_shared<BatchLayout>();
  layout->num_tokens = static_cast<int64_t>(positions.size());
  layout->positions = std::move(positions);
  return layout;
}

std::shared_ptr<const std::vector<float>> ramp(int count) {
  std::vector<float> factors;
  for (int i = 0; i < count; ++i) factors.push_back(1.0f + 0.0625f * static_cast<float>(i));
  return std::make_shared<const std::vector<float>>(std::move(factors));
}

TEST(PositionScale, EachRowIsTimesTheFactorOfItsPosition) {
  const auto factors = ramp(30);
  const std::vector<int32_t> positions = {3, 29, 0, 7, 8};
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      SCOPED_TRACE(isa + " " + dtype_name(dtype));
      Context context = make_context(2);
      const mx::array x = random_array({5, 3, 35}, dtype, 1);
      const mx::array y = position_scale(context, x, layout_at(positions), factors);
      for (int t = 0; t < 5; ++t) {
        const mx::array row = mx::slice(x, {t, 0, 0}, {t + 1, 3, 35});
        const mx::array want =
            mx::astype(mx::astype(row, mx::float32) * mx::array((*factors)[positions[t]]), dtype);
        EXPECT_TRUE(same_bits(mx::slice(y, {t, 0, 0}, {t + 1, 3, 35}), want));
      }
      EXPECT_TRUE(kernel_ran(context, "position_scale", 1));
      context.use_reference = true;
      EXPECT_TRUE(same_bits(y, position_scale(context, x, layout_at(positions), factors)));
    }
  }
}

TEST(PositionScale, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const mx::array x = mx::zeros({2, 4});
  EXPECT_THROW(position_scale(context, x, layout_at({1}), ramp(4)), std::invalid_argument);
  EXPECT_THROW(position_scale(context, x, layout_at({1, 4}), ramp(4)), std::invalid_argument);
  EXPECT_THROW(position_scale(context, x, layout_at({1, -1}), ramp(4)), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
