#include "ops/activation/activation.h"

#include "ops/gated_activation/gated_activation.h"
#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;
using Kind = Gate::Kind;

constexpr Kind kKinds[] = {Kind::kSilu, Kind::kGeluTanh, Kind::kGelu, Kind::kRelu2};

// As Gate documents them.
double exact(Kind kind, double x) {
  switch (kind) {
    case Kind::kSilu:
      return x / (1 + std::exp(-x));
    case Kind::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Kind::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Kind::kRelu2:
      return x > 0 ? x * x : 0;
    case Kind::kClampedSwiglu:
      break;
  }
  return NAN;
}

// The bound is that of gated_activation's functions, and one rounding to the dtype.
TEST(Activation, MatchesFloat64) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [rows, width] : {std::pair(1, 1), {3, 7}, {2, 16}, {40, 1001}}) {
        const mx::array x = random_array({rows, width}, dtype, 1, 4.0f);
        const auto values = to_floats(x);
        for (const Kind kind : kKinds) {
          const Context context = make_context(2);
          const auto y = to_floats(activation(context, x, {.kind = kind}));
          EXPECT_TRUE(kernel_ran(context, "activation", 1));
          for (size_t i = 0; i < y.size(); ++i) {
            const double want = exact(kind, values[i]);
            const double rounding = 1e-6 + (dtype == mx::float32 ? 0 : unit_roundoff(dtype));
            ASSERT_NEAR(y[i], want, 4e-7 + rounding * std::abs(want))
                << isa << " " << dtype_name(dtype) << " " << gate_name(kind) << " of " << values[i];
          }
        }
      }
    }
  }
}

TEST(Activation, IsTheGateOfAnUpOfOne) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const Kind kind : kKinds) {
      Context context = make_context(1);
      const mx::array x = random_array({5, 333}, mx::bfloat16, 1, 4.0f);
      const mx::array both = mx::concatenate({x, mx::ones_like(x)}, 1);
      const mx::array y = activation(context, x, {.kind = kind});
      EXPECT_TRUE(same_bits(y, gated_activation(context, both, {.kind = kind})))
          << isa << " " << gate_name(kind);
      context.use_reference = true;
      EXPECT_TRUE(near(y, activation(context, x, {.kind = kind}),
                       {.abs = 2e-5f, .rel = 2 * unit_roundoff(mx::bfloat16)}));
    }
  }
}

TEST(Activation, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  EXPECT_THROW(activation(context, mx::zeros({8}), {}), std::invalid_argument);
  EXPECT_THROW(activation(context, mx::zeros({2, 8}, mx::int32), {}), std::invalid_argument);
  EXPECT_THROW(activation(context, mx::zeros({2, 8}), {.kind = Kind::kClampedSwiglu}),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
