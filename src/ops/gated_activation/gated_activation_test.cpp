#include "ops/gated_activation/gated_activation.h"

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

TEST(GatedActivation, MatchesItsReference) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [rows, width] : {std::pair(1, 1), {3, 7}, {2, 16}, {5, 33}, {40, 1000}}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " width " + std::to_string(width));
        Context context = make_context(2);
        const mx::array x = random_array({rows, 2 * width}, dtype, 1, 4.0f);
        const mx::array y = gated_activation(context, x);
        context.use_reference = true;
        EXPECT_TRUE(near(y, gated_activation(context, x), bound(dtype, 36 * 0x1p-24f)));
        EXPECT_TRUE(kernel_ran(context, "gated_activation", 1));
        EXPECT_EQ(context.kernels->count("gated_activation", "reference"), 1);
      }
    }
  }
}

constexpr Gate kRarer[] = {{.kind = Gate::Kind::kGeluTanh},
                           {.kind = Gate::Kind::kGelu},
                           {.kind = Gate::Kind::kRelu2},
                           {.kind = Gate::Kind::kClampedSwiglu},
                           {.kind = Gate::Kind::kClampedSwiglu, .alpha = 0.5f, .limit = 1.25f}};

// As Gate documents them.
double exact(const Gate& gate, double x, double up) {
  switch (gate.kind) {
    case Gate::Kind::kSilu:
      return x / (1 + std::exp(-x)) * up;
    case Gate::Kind::kGeluTanh: {
      const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1 + std::tanh(u)) * up;
    }
    case Gate::Kind::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0)) * up;
    case Gate::Kind::kRelu2:
      return x > 0 ? x * x * up : 0;
    case Gate::Kind::kClampedSwiglu: {
      const double g = std::min(x, double{gate.limit});
      const double u = std::clamp(up, -double{gate.limit}, double{gate.limit});
      return g / (1 + std::exp(-double{gate.alpha} * g)) * (u + 1);
    }
  }
  return NAN;
}

// Against float64 over the range in which the activations bend, in steps of no power of two. What
// is lost is relative to the result but for far negative gates, where results are tiny.
TEST(GatedActivation, RarerGatesMatchFloat64) {
  constexpr int kCount = 40'011;
  std::vector<float> values;
  for (int i = 0; i < kCount; ++i) values.push_back(-20.0f + 0.001f * static_cast<float>(i));
  for (int i = 0; i < kCount; ++i) values.push_back(static_cast<float>(i % 17) * 0.73f - 5.0f);
  const mx::array gate_up(values.data(), {1, 2 * kCount});
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const Gate& gate : kRarer) {
      const auto y = to_floats(gated_activation(make_context(2), gate_up, gate));
      for (int i = 0; i < kCount; ++i) {
        const double want = exact(gate, values[i], values[kCount + i]);
        ASSERT_NEAR(y[i], want, 2e-7 + 1e-6 * std::abs(want))
            << isa << " " << gate_name(gate.kind) << " of " << values[i];
      }
    }
  }
}

TEST(GatedActivation, RarerGatesMatchTheirReferencesInEveryDtype) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const Gate& gate : kRarer) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " " + gate_name(gate.kind));
        Context context = make_context(2);
        const mx::array x = random_array({5, 66}, dtype, 1, 4.0f);
        const mx::array y = gated_activation(context, x, gate);
        context.use_reference = true;
        const float rounding = dtype == mx::float32 ? 0 : 2 * unit_roundoff(dtype);
        EXPECT_TRUE(
            near(y, gated_activation(context, x, gate), {.abs = 2e-5f, .rel = 1e-5f + rounding}));
        EXPECT_TRUE(kernel_ran(context, "gated_activation", 1));
      }
    }
  }
}

// Instruction sets with fused multiply-adds agree, and what is not finite is not hidden.
TEST(GatedActivation, RarerGatesHaveTheSameBitsEverywhereAndKeepWhatIsNotANumber) {
  const mx::array x = random_array({7, 2 * 333}, mx::float32, 3, 6.0f);
  const std::vector<float> ends = {NAN, -INFINITY, -1e30f, -100.0f, 100.0f, 1e18f,
                                   1,   1,         1,      1,       1,      1};
  for (const Gate& gate : kRarer) {
    std::optional<mx::array> first;
    for (const auto& isa : isas_to_test()) {
      const ForcedIsa forced(isa);
      SCOPED_TRACE(isa + " " + gate_name(gate.kind));
      const mx::array y = gated_activation(make_context(1), x, gate);
      const auto e =
          to_floats(gated_activation(make_context(1), mx::array(ends.data(), {1, 12}), gate));
      EXPECT_TRUE(std::isnan(e[0]));
      EXPECT_EQ(e[2], 0);
      EXPECT_NEAR(e[3], 0, 1e-15);
      EXPECT_GT(e[4], 1);
      if (isa == "portable") continue;
      if (first) {
        EXPECT_TRUE(same_bits(y, *first));
      }
      first = y;
    }
  }
}

// An up somewhere else gives the bits of the same one beside its gate.
TEST(GatedActivation, UpsMayBeColumnsOfAnotherMatrix) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const int width : {1, 16, 35}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " width " + std::to_string(width));
        Context context = make_context(2);
        const Gate gate = {.kind = Gate::Kind::kGeluTanh};
        const mx::array x = random_array({5, width}, dtype, 1, 4.0f);
        const mx::array wide = random_array({5, 3 * width + 2}, dtype, 2, 4.0f);
        const mx::array ups = mx::contiguous(mx::slice(wide, {0, width + 1}, {5, 2 * width + 1}));
        const mx::array beside = mx::contiguous(mx::concatenate({x, ups}, 1));
        const Columns columns = {.matrix = wide, .first = width + 1};
        const mx::array y = gated_activation(context, x, columns, gate);
        EXPECT_TRUE(same_bits(y, gated_activation(context, beside, gate)));
        EXPECT_TRUE(kernel_ran(context, "gated_activation", 2));
        context.use_reference = true;
        EXPECT_TRUE(same_bits(gated_activation(context, x, columns, gate),
                              gated_activation(context, beside, gate)));
      }
    }
  }
  const mx::array x = mx::zeros({2, 4}), up = mx::zeros({2, 6});
  const auto refused = [&](const mx::array& matrix, int64_t first) {
    EXPECT_THROW(gated_activation(make_context(1), x, {.matrix = matrix, .first = first}, {}),
                 std::invalid_argument);
  };
  refused(up, 3);
  refused(up, -1);
  refused(mx::zeros({3, 6}), 0);
  refused(mx::zeros({2, 6}, mx::float16), 0);
}

// Where e^-x overflows and underflows.
TEST(GatedActivation, SiluHoldsAtTheEnds) {
  const std::vector<float> gates = {-1e30f, -200.0f, -104.0f, -88.8f, -87.0f, -0.0f,   0.0f,
                                    17.0f,  88.0f,   104.0f,  3e38f,  NAN,    INFINITY};
  const int n = static_cast<int>(gates.size());
  std::vector<float> values = gates;
  values.resize(2 * n, 1.0f);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const auto y =
        to_floats(gated_activation(make_context(1), mx::array(values.data(), {1, 2 * n})));
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

TEST(GatedActivation, RowsDoNotDependOnTheBatch) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const mx::array x = random_array({64, 2 * 777}, mx::bfloat16, 1);
    const mx::array whole = gated_activation(make_context(3), x);
    const mx::array row = mx::contiguous(mx::slice(x, {50, 0}, {51, 2 * 777}));
    EXPECT_TRUE(
        same_bits(gated_activation(make_context(1), row), mx::slice(whole, {50, 0}, {51, 777})))
        << isa;
  }
}

// Made from torch, float32 (tools/parity).
TEST(GatedActivation, SiluMatchesGoldenData) {
  const GoldenFile golden("tests/parity/ops/silu_mul.safetensors");
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const auto& name : golden.cases()) {
      const mx::array x =
          mx::concatenate({golden.array(name, "gate"), golden.array(name, "up")}, 1);
      EXPECT_TRUE(near(gated_activation(make_context(1), x), golden.array(name, "out"),
                       bound(mx::float32, 2 * kKernelError)))
          << isa << " " << name;
    }
  }
}

TEST(GatedActivation, NoRowsGiveNoRows) {
  EXPECT_EQ(to_floats(gated_activation(make_context(2), mx::zeros({0, 8}))).size(), 0u);
}

TEST(GatedActivation, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  EXPECT_THROW(gated_activation(context, mx::zeros({2, 7})), std::invalid_argument);
  EXPECT_THROW(gated_activation(context, mx::zeros({8})), std::invalid_argument);
  EXPECT_THROW(gated_activation(context, mx::zeros({2, 8}, mx::int32)), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
