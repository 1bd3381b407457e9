#include "ops/layer_norm/layer_norm.h"

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr float kEps = 1e-5f;
const mx::Shape kShapes[] = {{1, 1},  {3, 7},  {1, 16},     {2, 63},
                             {2, 64}, {5, 65}, {2, 3, 128}, {40, 1000}};

std::optional<mx::array> bias_of(bool has_bias, int width) {
  return has_bias ? std::optional(random_array({width}, mx::float32, 3)) : std::nullopt;
}

// Rows around 0, and rows whose mean is far larger than what they differ by.
mx::array rows_of(const mx::Shape& shape, mx::Dtype dtype, float centre) {
  return mx::astype(random_array(shape, mx::float32, 1, 3.0f) + mx::array(centre), dtype);
}

TEST(LayerNorm, MatchesItsReference) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const mx::Shape& shape : kShapes) {
        for (const bool has_bias : {false, true}) {
          SCOPED_TRACE(isa + " " + dtype_name(dtype) + " width " + std::to_string(shape.back()));
          Context context = make_context(2);
          const mx::array x = rows_of(shape, dtype, 0.5f);
          const mx::array weight = random_array({shape.back()}, mx::float32, 2);
          const auto bias = bias_of(has_bias, shape.back());
          const mx::array y = layer_norm(context, x, weight, bias, kEps);
          context.use_reference = true;
          // Sums of D terms in another order: each within D u of the exact one, of values that are
          // some deviations wide; then roundings to the dtype, which may fall to different sides.
          const float u = unit_roundoff(mx::float32), rounding = 2 * unit_roundoff(dtype);
          EXPECT_TRUE(near(y, layer_norm(context, x, weight, bias, kEps),
                           {.abs = 8 * static_cast<float>(shape.back() + 8) * u,
                            .rel = (dtype == mx::float32 ? 8 * u : rounding)}));
          EXPECT_TRUE(kernel_ran(context, "layer_norm", 1));
        }
      }
    }
  }
}

// Against float64, apart from kernel and reference. The error of the mean is that of a sum of 64
// chains; it counts by what the row is wide.
TEST(LayerNorm, MatchesFloat64) {
  constexpr int kWidth = 777;
  for (const float centre : {0.0f, 100.0f}) {
    const mx::array x = rows_of({3, kWidth}, mx::float32, centre);
    const mx::array weight = random_array({kWidth}, mx::float32, 2);
    const mx::array bias = random_array({kWidth}, mx::float32, 3);
    const auto values = to_floats(x), w = to_floats(weight), b = to_floats(bias);
    for (const auto& isa : isas_to_test()) {
      const ForcedIsa forced(isa);
      const auto y = to_floats(layer_norm(make_context(1), x, weight, bias, kEps));
      for (int row = 0; row < 3; ++row) {
        const float* in = values.data() + row * kWidth;
        double mean = 0, variance = 0;
        for (int i = 0; i < kWidth; ++i) mean += double{in[i]} / kWidth;
        for (int i = 0; i < kWidth; ++i) variance += (in[i] - mean) * (in[i] - mean) / kWidth;
        for (int i = 0; i < kWidth; ++i) {
          const double want = (in[i] - mean) / std::sqrt(variance + kEps) * w[i] + b[i];
          ASSERT_NEAR(y[row * kWidth + i], want, 2e-6 + centre * 1e-6)
              << isa << " row " << row << " column " << i;
        }
      }
    }
  }
}

// The bits contract: a row's bits depend on the row alone, and vector lengths agree.
TEST(LayerNorm, RowsDoNotDependOnTheBatchNorOnVectors) {
  for (const mx::Dtype dtype : float_dtypes()) {
    std::optional<mx::array> first;
    for (const auto& isa : isas_to_test()) {
      const ForcedIsa forced(isa);
      const mx::array x = rows_of({64, 999}, dtype, 1.0f);
      const mx::array weight = random_array({999}, mx::float32, 2);
      const mx::array whole = layer_norm(make_context(3), x, weight, std::nullopt, kEps);
      for (const int row : {0, 17, 63}) {
        const auto one = [&](const mx::array& a) { return mx::slice(a, {row, 0}, {row + 1, 999}); };
        EXPECT_TRUE(same_bits(
            layer_norm(make_context(1), mx::contiguous(one(x)), weight, std::nullopt, kEps),
            one(whole)))
            << isa << " row " << row;
      }
      if (isa == "portable") continue;  // has no fused multiply-add
      if (first) {
        EXPECT_TRUE(same_bits(whole, *first)) << isa;
      }
      mx::eval(whole);
      first = whole;
    }
  }
}

TEST(LayerNorm, NoRowsGiveNoRows) {
  const mx::array y =
      layer_norm(make_context(2), mx::zeros({0, 8}), mx::ones({8}), std::nullopt, kEps);
  EXPECT_EQ(to_floats(y).size(), 0u);
}

TEST(LayerNorm, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const mx::array x = mx::zeros({2, 8}), weight = mx::ones({8});
  const auto refuses = [&](const mx::array& in, const mx::array& w,
                           const std::optional<mx::array>& b) {
    EXPECT_THROW(layer_norm(context, in, w, b, kEps), std::invalid_argument);
  };
  refuses(x, mx::ones({9}), std::nullopt);
  refuses(x, mx::ones({8}, mx::bfloat16), std::nullopt);
  refuses(x, weight, mx::ones({7}));
  refuses(x, weight, mx::ones({8}, mx::float16));
  refuses(mx::zeros({2, 8}, mx::int32), weight, std::nullopt);
  refuses(mx::array(1.0f), weight, std::nullopt);
}

}  // namespace
}  // namespace quire::ops
