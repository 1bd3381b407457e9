#include "ops/sigmoid_gate/sigmoid_gate.h"

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// A few roundings and the exponential in float32, then one to the dtype on either side.
Bound bound(mx::Dtype dtype) {
  return {.abs = 1e-7f,
          .rel = 16 * unit_roundoff(mx::float32) +
                 (dtype == mx::float32 ? 0 : 2 * unit_roundoff(dtype))};
}

TEST(SigmoidGate, MatchesItsReference) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [rows, width] : {std::pair(1, 1), {3, 63}, {2, 64}, {40, 1000}}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " width " + std::to_string(width));
        Context context = make_context(2);
        const mx::array x = random_array({rows, width}, dtype, 1, 3.0f);
        const mx::array projected = random_array({rows, 2 * width + 3}, dtype, 2, 5.0f);
        const Columns gate{.matrix = projected, .first = width + 2};
        const mx::array y = sigmoid_gate(context, x, gate);
        context.use_reference = true;
        EXPECT_TRUE(near(y, sigmoid_gate(context, x, gate), bound(dtype)));
        EXPECT_TRUE(kernel_ran(context, "sigmoid_gate", 1));
      }
    }
  }
}

TEST(SigmoidGate, EndsOfTheRange) {
  const std::vector<float> values = {-1e30f, -200.0f, -88.0f, 0.0f, 20.0f, 200.0f, 1e30f};
  const mx::array gate(values.data(), {1, 7}, mx::float32);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const auto y = to_floats(sigmoid_gate(make_context(1), mx::ones({1, 7}), {.matrix = gate}));
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_NEAR(y[i], 1.0 / (1.0 + std::exp(-static_cast<double>(values[i]))), 1e-6);
  }
}

TEST(SigmoidGate, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const mx::array x = mx::zeros({2, 8}), gate = mx::zeros({2, 20});
  EXPECT_THROW(sigmoid_gate(context, x, {gate, 13}), std::invalid_argument);
  EXPECT_THROW(sigmoid_gate(context, x, {gate, -1}), std::invalid_argument);
  EXPECT_THROW(sigmoid_gate(context, mx::zeros({3, 8}), {gate, 0}), std::invalid_argument);
  EXPECT_THROW(sigmoid_gate(context, mx::zeros({2, 8}, mx::float16), {gate, 0}),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
