#include "ops/rms_norm/rms_norm.h"

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr float kEps = 1e-6f;
const mx::Shape kShapes[] = {{1, 1},  {3, 7},  {1, 16},     {2, 63},
                             {2, 64}, {5, 65}, {2, 3, 128}, {40, 1000}};

// Kernel and reference add the squares in different orders: each sum of D positive terms is within
// D u of the exact one, and the root halves that. Then a few roundings in float32, and twice the
// rounding to the dtype, which may fall to different sides.
Bound bound(mx::Dtype dtype, int width) {
  const float u = unit_roundoff(mx::float32);
  return {.abs = 1e-7f,
          .rel = (width + 6) * u + (dtype == mx::float32 ? 0 : 4 * unit_roundoff(dtype))};
}

TEST(RmsNorm, MatchesItsReference) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const mx::Shape& shape : kShapes) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " width " + std::to_string(shape.back()));
        Context context = make_context(2);
        const mx::array x = random_array(shape, dtype, 1, 3.0f);
        const mx::array weight = random_array({shape.back()}, mx::float32, 2);
        const mx::array y = rms_norm(context, x, weight, kEps);
        context.use_reference = true;
        EXPECT_TRUE(near(y, rms_norm(context, x, weight, kEps), bound(dtype, shape.back())));
        EXPECT_TRUE(kernel_ran(context, "rms_norm", 1));
        EXPECT_EQ(context.kernels->count("rms_norm", "reference"), 1);
      }
    }
  }
}

TEST(RmsNorm, ResidualFormIsTheSumAndItsNorm) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const mx::Shape& shape : kShapes) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " width " + std::to_string(shape.back()));
        Context context = make_context(2);
        const mx::array x = random_array(shape, dtype, 1), r = random_array(shape, dtype, 3, 5.0f);
        const mx::array weight = random_array({shape.back()}, mx::float32, 2);
        const auto [y, sum] = add_rms_norm(context, x, r, weight, kEps);
        EXPECT_TRUE(same_bits(y, rms_norm(context, sum, weight, kEps)));
        EXPECT_TRUE(kernel_ran(context, "add_rms_norm", 1));
        context.use_reference = true;
        const auto [y_reference, sum_reference] = add_rms_norm(context, x, r, weight, kEps);
        EXPECT_TRUE(same_bits(sum, sum_reference));
        EXPECT_TRUE(near(y, y_reference, bound(dtype, shape.back())));
      }
    }
  }
}

// By hand, apart from kernel and reference: 3 / sqrt(5) = 1.341640787 is 1373.84 units of float16
// and 171.73 of bfloat16, so a second rounding before the weight would show in the result.
TEST(RmsNorm, RoundsOnceAfterTheWeight) {
  struct Case {
    mx::Dtype dtype;
    float weight, once, twice;
  };
  const Case cases[] = {
      // 1.341640787 * 1.3 = 223.25 / 128, but 172 / 128 * 1.3 = 223.6 / 128
      {mx::bfloat16, 1.3f, 223.0f / 128, 224.0f / 128},
      // 1.341640787 * 1.4 = 1923.38 / 1024, but 1374 / 1024 * 1.4 = 1923.6 / 1024
      {mx::float16, 1.4f, 1923.0f / 1024, 1924.0f / 1024},
  };
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const Case& c : cases) {
      for (const bool reference : {false, true}) {
        SCOPED_TRACE(isa + " " + dtype_name(c.dtype) + (reference ? " reference" : ""));
        Context context = make_context(1);
        context.use_reference = reference;
        const mx::array x = mx::astype(mx::array({3.0f, 1.0f}, {1, 2}), c.dtype);
        const auto y = to_floats(rms_norm(context, x, mx::array({c.weight, 1.0f}), 0.0f));
        EXPECT_EQ(y.at(0), c.once);
        EXPECT_NE(y.at(0), c.twice);
      }
    }
  }
}

// The bits contract: a row's bits depend on the row alone.
TEST(RmsNorm, RowsDoNotDependOnTheBatch) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const mx::array x = random_array({64, 999}, mx::bfloat16, 1);
    const mx::array weight = random_array({999}, mx::float32, 2);
    const mx::array whole = rms_norm(make_context(3), x, weight, kEps);
    for (const int row : {0, 17, 63}) {
      const auto one = [&](const mx::array& a) { return mx::slice(a, {row, 0}, {row + 1, 999}); };
      const mx::array alone = rms_norm(make_context(1), mx::contiguous(one(x)), weight, kEps);
      EXPECT_TRUE(same_bits(alone, one(whole))) << isa << " row " << row;
    }
  }
}

TEST(RmsNorm, VectorLengthsAgreeBitForBit) {
  if (!has_cpu_isa("avx2") || !has_cpu_isa("avx512")) GTEST_SKIP() << "needs AVX2 and AVX-512";
  for (const mx::Dtype dtype : float_dtypes()) {
    const mx::array x = random_array({5, 333}, dtype, 1);
    const mx::array weight = random_array({333}, mx::float32, 2);
    const auto compute = [&](const char* isa) {
      const ForcedIsa forced(isa);
      mx::array y = rms_norm(make_context(1), x, weight, kEps);
      mx::eval(y);
      return y;
    };
    EXPECT_TRUE(same_bits(compute("avx2"), compute("avx512"))) << dtype_name(dtype);
  }
}

// Made from torch, float32 (tools/parity). torch adds in yet another order.
TEST(RmsNorm, MatchesGoldenData) {
  const GoldenFile golden("tests/parity/ops/rms_norm.safetensors");
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const auto& name : golden.cases()) {
      SCOPED_TRACE(isa + " " + name);
      const Context context = make_context(2);
      const mx::array x = golden.array(name, "x");
      const mx::array weight =
          golden.array(name, "weight") + mx::array(golden.number(name, "weight_offset"));
      const float eps = golden.number(name, "eps");
      const Bound limit = bound(mx::float32, x.shape(-1));
      if (golden.has(name, "residual")) {
        const auto [y, sum] = add_rms_norm(context, x, golden.array(name, "residual"), weight, eps);
        EXPECT_TRUE(near(y, golden.array(name, "out"), limit));
        EXPECT_TRUE(same_bits(sum, golden.array(name, "residual_out")));
      } else {
        EXPECT_TRUE(near(rms_norm(context, x, weight, eps), golden.array(name, "out"), limit));
      }
    }
  }
}

TEST(RmsNorm, NoRowsGiveNoRows) {
  const mx::array y = rms_norm(make_context(2), mx::zeros({0, 8}), mx::ones({8}), kEps);
  EXPECT_EQ(to_floats(y).size(), 0u);
}

TEST(RmsNorm, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const mx::array x = mx::zeros({2, 8}), weight = mx::ones({8});
  EXPECT_THROW(rms_norm(context, x, mx::ones({9}), kEps), std::invalid_argument);
  EXPECT_THROW(rms_norm(context, x, mx::ones({8}, mx::bfloat16), kEps), std::invalid_argument);
  EXPECT_THROW(rms_norm(context, mx::zeros({2, 8}, mx::int32), weight, kEps),
               std::invalid_argument);
  EXPECT_THROW(rms_norm(context, mx::array(1.0f), weight, kEps), std::invalid_argument);
  EXPECT_THROW(add_rms_norm(context, x, mx::zeros({1, 8}), weight, kEps), std::invalid_argument);
  EXPECT_THROW(add_rms_norm(context, x, mx::zeros({2, 8}, mx::float16), weight, kEps),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
