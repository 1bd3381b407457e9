#include "ops/norm_columns/norm_columns.h"

#include "ops/rms_norm/rms_norm.h"
#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr float kEps = 1e-5f;

mx::array columns(const mx::array& x, int begin, int end) {
  return mx::contiguous(mx::slice(x, {0, begin}, {x.shape(0), end}));
}

// A group that begins late, three after one another, and columns that stay.
TEST(NormColumns, EachGroupIsThatOfRmsNorm) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const int rows : {1, 3, 40}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " " + std::to_string(rows) + " rows");
        Context context = make_context(2);
        const mx::array x = random_array({rows, 300}, dtype, 1, 3.0f);
        const std::vector<ColumnNorm> norms = {
            {.first = 5, .weight = random_array({101}, mx::float32, 2)},
            {.first = 110, .count = 3, .weight = random_array({24}, mx::float32, 3)}};
        const mx::array y = norm_columns(context, x, norms, kEps);
        const auto normed = [&](int begin, int width, size_t norm) {
          return rms_norm(context, columns(x, begin, begin + width), norms[norm].weight, kEps);
        };
        EXPECT_TRUE(same_bits(columns(y, 0, 5), columns(x, 0, 5)));
        EXPECT_TRUE(same_bits(columns(y, 5, 106), normed(5, 101, 0)));
        EXPECT_TRUE(same_bits(columns(y, 106, 110), columns(x, 106, 110)));
        for (const int begin : {110, 134, 158})
          EXPECT_TRUE(same_bits(columns(y, begin, begin + 24), normed(begin, 24, 1)));
        EXPECT_TRUE(same_bits(columns(y, 182, 300), columns(x, 182, 300)));
        EXPECT_TRUE(kernel_ran(context, "norm_columns", 1));
        context.use_reference = true;
        EXPECT_TRUE(near(y, norm_columns(context, x, norms, kEps),
                         {.abs = 1e-6f, .rel = 1e-6f + 2 * unit_roundoff(dtype)}));
      }
    }
  }
}

TEST(NormColumns, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const mx::array x = mx::zeros({2, 30}), w = mx::zeros({10});
  EXPECT_THROW(norm_columns(context, x, {{.first = 21, .weight = w}}, kEps), std::invalid_argument);
  EXPECT_THROW(norm_columns(context, x, {{.first = -1, .weight = w}}, kEps), std::invalid_argument);
  EXPECT_THROW(
      norm_columns(context, x, {{.first = 10, .weight = w}, {.first = 19, .weight = w}}, kEps),
      std::invalid_argument);
  EXPECT_THROW(norm_columns(context, x, {{.weight = mx::zeros({10}, mx::float16)}}, kEps),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
