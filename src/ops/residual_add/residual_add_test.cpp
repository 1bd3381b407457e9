#include "ops/residual_add/residual_add.h"

#include "ops/rms_norm/rms_norm.h"
#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// Bit for bit rms_norm, and then plain arithmetic; near the reference.
TEST(ResidualAdd, IsTheCompositionOfItsParts) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [rows, width] : {std::pair(1, 1), {3, 63}, {2, 64}, {40, 1000}}) {
        for (const bool norm : {false, true}) {
          SCOPED_TRACE(isa + " " + dtype_name(dtype) + " width " + std::to_string(width));
          Context context = make_context(2);
          const mx::array x = random_array({rows, width}, dtype, 1, 3.0f);
          const mx::array residual = random_array({rows, width}, dtype, 2);
          ResidualAddOptions options = {.eps = 1e-6f, .multiplier = 0.22f};
          if (norm) options.norm_weight = random_array({width}, mx::float32, 3);
          const mx::array y = residual_add(context, x, residual, options);
          const mx::array n = norm ? rms_norm(context, x, *options.norm_weight, 1e-6f) : x;
          const mx::array sum = mx::astype(
              mx::astype(residual, mx::float32) + mx::astype(n, mx::float32) * mx::array(0.22f),
              dtype);
          EXPECT_TRUE(same_bits(y, sum));
          EXPECT_TRUE(kernel_ran(context, "residual_add", 1));
          context.use_reference = true;
          const float rounding = 4 * unit_roundoff(dtype);
          EXPECT_TRUE(near(y, residual_add(context, x, residual, options),
                           {.abs = 4 * rounding, .rel = 1e-6f + rounding}));
        }
      }
    }
  }
}

TEST(ResidualAdd, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const mx::array x = mx::zeros({2, 8});
  EXPECT_THROW(residual_add(context, x, mx::zeros({2, 7}), {}), std::invalid_argument);
  EXPECT_THROW(residual_add(context, x, mx::zeros({2, 8}, mx::float16), {}), std::invalid_argument);
  EXPECT_THROW(residual_add(context, x, x, {.norm_weight = mx::zeros({7})}), std::invalid_argument);
  EXPECT_THROW(residual_add(context, x, x, {.multiplier = NAN}), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
