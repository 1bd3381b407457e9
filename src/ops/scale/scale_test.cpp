#include "ops/scale/scale.h"

#include <cmath>
#include <limits>
#include <vector>

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

TEST(Scale, MatchesItsReference) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const float softcap : {0.0f, 3.0f}) {
        for (const auto& [rows, width] : {std::pair(1, 1), {3, 21}, {2, 64}, {40, 1003}}) {
          SCOPED_TRACE(isa + " " + dtype_name(dtype) + " width " + std::to_string(width));
          Context context = make_context(2);
          const mx::array x = random_array({rows, width}, dtype, 1, 4.0f);
          const mx::array y = scale(context, x, 1.7f, softcap);
          context.use_reference = true;
          const float rounding = dtype == mx::float32 ? 0 : 2 * unit_roundoff(dtype);
          EXPECT_TRUE(near(y, scale(context, x, 1.7f, softcap),
                           {.abs = 1e-6f, .rel = 8 * 0x1p-24f + rounding}));
          EXPECT_TRUE(kernel_ran(context, "scale", 1));
        }
      }
    }
  }
}

// The formula in float64; a plain multiplier is one rounding, so exact.
TEST(Scale, MatchesFloat64AndDoesNotDependOnTheInstructionSet) {
  const mx::array x = random_array({2001}, mx::float32, 7, 50.0f);
  const auto values = to_floats(x);
  std::optional<mx::array> first;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const auto plain = to_floats(scale(make_context(1), x, 0.25f));
    const mx::array y = scale(make_context(2), x, 0.5f, 30.0f);
    const auto capped = to_floats(y);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(plain[i], values[i] * 0.25f) << isa;
      const double want = 30 * std::tanh(double{values[i]} * 0.5 / 30);
      ASSERT_NEAR(capped[i], want, 4e-7 * std::abs(want)) << isa << " " << values[i];
    }
    if (isa == "portable") continue;
    if (first) {
      EXPECT_TRUE(same_bits(y, *first)) << isa;
    }
    first = y;
  }
}

// The logit of a token that is never to be sampled, in whole vectors and behind them.
TEST(Scale, MinusInfinityStaysThat) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const bool use_reference : {false, true}) {
        Context context = make_context(1);
        context.use_reference = use_reference;
        std::vector<float> values(67, 200.0f);
        for (const size_t i : {0u, 5u, 33u, 66u}) values[i] = -kInf;
        const mx::array x = mx::astype(mx::array(values.data(), {67}, mx::float32), dtype);
        const auto y = to_floats(scale(context, x, 0.5f, 30.0f));
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_EQ(y[i], values[i] == -kInf ? -kInf : y[1]) << isa << " " << i;
        ASSERT_NEAR(y[1], 30 * std::tanh(100.0 / 30), 0.1);
        if (!use_reference) {
          EXPECT_TRUE(kernel_ran(context, "scale", 1));
        }
      }
    }
  }
}

TEST(Scale, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  EXPECT_THROW(scale(context, mx::zeros({2}, mx::int32), 1), std::invalid_argument);
  EXPECT_THROW(scale(context, mx::zeros({2}), NAN), std::invalid_argument);
  EXPECT_THROW(scale(context, mx::zeros({2}), 1, -1), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
