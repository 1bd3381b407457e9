#include "ops/silu_mul/silu_mul.h"

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// The kernel is within 4 units of roundoff of the exact value (its exp 1 ulp, then an addition, a
// division and a product); MLX's exp alone was measured to err by 29. Then one rounding to the
// dtype, which may fall to the other side. Below the smallest normal number both may give zero.
constexpr float kKernelError = 4 * 0x1p-24f;
Bound bound(mx::Dtype dtype, float error) {
  return {.abs = dtype == mx::float16 ? 6e-8f : 1e-36f,
          .rel = error + (dtype == mx::float32 ? 0 : 2 * unit_roundoff(dtype))};
}

TEST(SiluMul, MatchesItsReference) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [rows, width] : {std::pair(1, 1), {3, 7}, {2, 16}, {5, 33}, {40, 1000}}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " width " + std::to_string(width));
        Context context = make_context(2);
        const mx::array x = random_array({rows, 2 * width}, dtype, 1, 4.0f);
        const mx::array y = silu_mul(context, x);
        context.use_reference = true;
        EXPECT_TRUE(near(y, silu_mul(context, x), bound(dtype, 36 * 0x1p-24f)));
        EXPECT_TRUE(kernel_ran(context, "silu_mul", 1));
        EXPECT_EQ(context.kernels->count("silu_mul", "reference"), 1);
      }
    }
  }
}

// Where e^-x overflows and underflows.
TEST(SiluMul, HoldsAtTheEnds) {
  const std::vector<float> gates = {-1e30f, -200.0f, -104.0f, -88.8f, -87.0f, -0.0f,   0.0f,
                                    17.0f,  88.0f,   104.0f,  3e38f,  NAN,    INFINITY};
  const int n = static_cast<int>(gates.size());
  std::vector<float> values = gates;
  values.resize(2 * n, 1.0f);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const auto y = to_floats(silu_mul(make_context(1), mx::array(values.data(), {1, 2 * n})));
    for (int i = 0; i < n; ++i) {
      const double x = gates[i], exact = x < -700 ? 0 : x / (1 + std::exp(-x));
      if (std::isnan(x)) {
        EXPECT_TRUE(std::isnan(y[i])) << isa;
      } else if (std::isinf(x)) {
        EXPECT_EQ(y[i], x) << isa;
      } else {
        EXPECT_NEAR(y[i], exact, 1e-36 + kKernelError * std::abs(exact)) << isa << " " << x;
      }
    }
  }
}

TEST(SiluMul, RowsDoNotDependOnTheBatch) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const mx::array x = random_array({64, 2 * 777}, mx::bfloat16, 1);
    const mx::array whole = silu_mul(make_context(3), x);
    const mx::array row = mx::contiguous(mx::slice(x, {50, 0}, {51, 2 * 777}));
    EXPECT_TRUE(same_bits(silu_mul(make_context(1), row), mx::slice(whole, {50, 0}, {51, 777})))
        << isa;
  }
}

// Made from torch, float32 (tools/parity).
TEST(SiluMul, MatchesGoldenData) {
  const GoldenFile golden("tests/parity/ops/silu_mul.safetensors");
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const auto& name : golden.cases()) {
      const mx::array x =
          mx::concatenate({golden.array(name, "gate"), golden.array(name, "up")}, 1);
      EXPECT_TRUE(near(silu_mul(make_context(1), x), golden.array(name, "out"),
                       bound(mx::float32, 2 * kKernelError)))
          << isa << " " << name;
    }
  }
}

TEST(SiluMul, NoRowsGiveNoRows) {
  EXPECT_EQ(to_floats(silu_mul(make_context(2), mx::zeros({0, 8}))).size(), 0u);
}

TEST(SiluMul, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  EXPECT_THROW(silu_mul(context, mx::zeros({2, 7})), std::invalid_argument);
  EXPECT_THROW(silu_mul(context, mx::zeros({8})), std::invalid_argument);
  EXPECT_THROW(silu_mul(context, mx::zeros({2, 8}, mx::int32)), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
