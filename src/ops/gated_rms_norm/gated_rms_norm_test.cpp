#include "ops/gated_rms_norm/gated_rms_norm.h"

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr float kEps = 1e-6f;

struct Shape {
  int tokens, heads, dim, before, after;  // columns of the projection before and after z
};
constexpr Shape kShapes[] = {
    {1, 1, 1, 0, 0}, {5, 3, 24, 7, 5}, {2, 4, 64, 64, 0}, {3, 2, 100, 1, 1}, {33, 16, 128, 96, 32}};

// As RmsNorm's, and the exponential's few units in the last place.
Bound bound(mx::Dtype dtype, int width) {
  return {.abs = 1e-7f,
          .rel = static_cast<float>(width + 16) * unit_roundoff(mx::float32) +
                 (dtype == mx::float32 ? 0 : 4 * unit_roundoff(dtype))};
}

mx::array projection(const Shape& s, mx::Dtype dtype) {
  return random_array({s.tokens, s.before + s.heads * s.dim + s.after}, dtype, 3, 4.0f);
}

TEST(GatedRmsNorm, MatchesItsReference) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const Shape& s : kShapes) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " D " + std::to_string(s.dim));
        Context context = make_context(2);
        const mx::array x = random_array({s.tokens, s.heads, s.dim}, dtype, 1, 3.0f);
        const mx::array weight = random_array({s.dim}, mx::float32, 2);
        const mx::array projected = projection(s, dtype);
        const Columns z{.matrix = projected, .first = s.before};
        const mx::array y = gated_rms_norm(context, x, z, weight, kEps);
        context.use_reference = true;
        EXPECT_TRUE(near(y, gated_rms_norm(context, x, z, weight, kEps), bound(dtype, s.dim)));
        EXPECT_TRUE(kernel_ran(context, "gated_rms_norm", 1));
        EXPECT_EQ(context.kernels->count("gated_rms_norm", "reference"), 1);
      }
    }
  }
}

TEST(GatedRmsNorm, RowsDoNotDependOnTheBatch) {
  const Shape s{65, 5, 72, 3, 4};
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const mx::array x = random_array({s.tokens, s.heads, s.dim}, mx::bfloat16, 1);
    const mx::array weight = random_array({s.dim}, mx::float32, 2);
    const mx::array projected = projection(s, mx::bfloat16);
    const auto rows = [](const mx::array& a, int begin, int end) {
      mx::Shape first(a.ndim(), 0), last = a.shape();
      first[0] = begin;
      last[0] = end;
      return mx::contiguous(mx::slice(a, first, last));
    };
    const mx::array whole = gated_rms_norm(make_context(3), x, {projected, s.before}, weight, kEps);
    for (const int row : {0, 31, 64}) {
      const mx::array one = rows(projected, row, row + 1);
      const mx::array alone =
          gated_rms_norm(make_context(1), rows(x, row, row + 1), {one, s.before}, weight, kEps);
      EXPECT_TRUE(same_bits(alone, rows(whole, row, row + 1))) << isa << " row " << row;
    }
  }
}

// Made from transformers, float32 (tools/parity).
TEST(GatedRmsNorm, MatchesGoldenData) {
  const GoldenFile golden("tests/parity/ops/gated_rms_norm.safetensors");
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const auto& name : golden.cases()) {
      SCOPED_TRACE(isa + " " + name);
      const Context context = make_context(2);
      const mx::array x = golden.array(name, "x"), z = golden.array(name, "z");
      const mx::array y = gated_rms_norm(context, x, {.matrix = z}, golden.array(name, "weight"),
                                         golden.number(name, "eps"));
      EXPECT_TRUE(near(y, golden.array(name, "out"), bound(mx::float32, x.shape(2))));
    }
  }
}

TEST(GatedRmsNorm, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const mx::array x = mx::zeros({2, 3, 8}), z = mx::zeros({2, 30}), weight = mx::ones({8});
  EXPECT_EQ(to_floats(gated_rms_norm(context, x, {z, 6}, weight, kEps)).size(), 48u);
  EXPECT_THROW(gated_rms_norm(context, x, {z, 7}, weight, kEps), std::invalid_argument);
  EXPECT_THROW(gated_rms_norm(context, x, {z, -1}, weight, kEps), std::invalid_argument);
  EXPECT_THROW(gated_rms_norm(context, x, {z, 0}, mx::ones({9}), kEps), std::invalid_argument);
  EXPECT_THROW(gated_rms_norm(context, mx::zeros({3, 3, 8}), {z, 0}, weight, kEps),
               std::invalid_argument);
  const mx::array half = mx::zeros({2, 30}, mx::float16);
  EXPECT_THROW(gated_rms_norm(context, x, {half, 0}, weight, kEps), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
