#include "ops/gated_activation/gated_activation.h"
#include "ops/linear/linear_test_util.h"
#include "ops/rms_norm/rms_norm.h"

// linear() with its options against the composition of the ops, bit for bit.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr float kEps = 1e-6f;

mx::array add_rounded(const mx::array& a, const mx::array& b) {
  return mx::astype(mx::astype(a, mx::float32) + mx::astype(b, mx::float32), a.dtype());
}

template <class Body>
void for_each_case(const Body& body) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [n, k] : {std::pair(34, 70), {96, 256}, {2, 33}}) {
        for (const int rows : kRowCounts) {
          SCOPED_TRACE(isa + " " + dtype_name(dtype) + " " + std::to_string(rows) + " rows, N " +
                       std::to_string(n));
          body(make_context(rows % 3 + 1), dtype, n, k, rows);
        }
      }
    }
  }
}

TEST(LinearFused, NormIsThatOfRmsNorm) {
  for_each_case([](const Context& context, mx::Dtype dtype, int n, int k, int rows) {
    const Weights w = random_weights(context, n, k, dtype, /*bias=*/rows % 2 == 1);
    const mx::array x = random_array({rows, k}, dtype, 1, 3.0f);
    const mx::array norm = random_array({k}, mx::float32, 4);
    const mx::array fused = linear(context, x, w.packed, {.norm = LinearOptions::Norm{norm, kEps}});
    ASSERT_TRUE(same_bits(fused, linear(context, rms_norm(context, x, norm, kEps), w.packed)));
    ASSERT_TRUE(kernel_ran(context, "linear", 2, dense_kernel(dtype)));
    EXPECT_FALSE(rows > 4 && same_bits(fused, linear(context, x, w.packed)));
  });
}

TEST(LinearFused, ResidualIsAddedToTheRoundedProduct) {
  for_each_case([](const Context& context, mx::Dtype dtype, int n, int k, int rows) {
    const Weights w = random_weights(context, n, k, dtype, /*bias=*/rows % 2 == 1);
    const mx::array x = random_array({rows, k}, dtype, 1);
    const mx::array residual = random_array({rows, n}, dtype, 5, 4.0f);
    const mx::array fused = linear(context, x, w.packed, {.residual = residual});
    ASSERT_TRUE(same_bits(fused, add_rounded(linear(context, x, w.packed), residual)));
    ASSERT_TRUE(kernel_ran(context, "linear", 2, dense_kernel(dtype)));
  });
}

constexpr Gate kGates[] = {{},
                           {.kind = Gate::Kind::kGeluTanh},
                           {.kind = Gate::Kind::kGelu},
                           {.kind = Gate::Kind::kRelu2},
                           {.kind = Gate::Kind::kClampedSwiglu, .alpha = 1.5f, .limit = 2.0f}};

TEST(LinearFused, GatesAreThoseOfGatedActivation) {
  for_each_case([](const Context& context, mx::Dtype dtype, int n, int k, int rows) {
    const bool bias = rows % 2 == 1;
    const Weights plain = random_weights(context, n, k, dtype, bias);
    const Weights gated = random_weights(context, n, k, dtype, bias, /*interleave=*/true);
    const mx::array x = random_array({rows, k}, dtype, 1);
    const mx::array norm = random_array({k}, mx::float32, 4);
    const mx::array gate_up = linear(context, rms_norm(context, x, norm, kEps), plain.packed);
    std::optional<mx::array> first;
    for (const Gate& gate : kGates) {
      const mx::array fused =
          linear(context, x, gated.packed, {.norm = LinearOptions::Norm{norm, kEps}, .gate = gate});
      EXPECT_EQ(fused.shape(), (mx::Shape{rows, n / 2}));
      ASSERT_TRUE(same_bits(fused, gated_activation(context, gate_up, gate)));
      EXPECT_FALSE(first && n > 2 && same_bits(fused, *first));
      if (!first) first = fused;
    }
    ASSERT_TRUE(kernel_ran(context, "linear", 6, dense_kernel(dtype)));
  });
}

// Many rows have their outputs written by whole cache lines, and go over a long k in ranges: not so
// few rows, which must have the same bits.
TEST(LinearFused, ManyRowsAreThoseOfFew) {
  constexpr int kFew = 13;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const auto& [n, k] : {std::pair(64, 96), {320, 1100}, {192, 2112}}) {
      const Context context = make_context(3);
      const Weights plain = random_weights(context, n, k, mx::bfloat16, /*bias=*/n == 320);
      const Weights gated = random_weights(context, n, k, mx::bfloat16, n == 320, true);
      int runs = 0;
      for (const int rows : {33, 64, 290, 580}) {
        SCOPED_TRACE(isa + " " + std::to_string(rows) + " rows, N " + std::to_string(n));
        runs += 4;
        const mx::array x = random_array({rows, k}, mx::bfloat16, 1);
        const mx::array residual = random_array({rows, n}, mx::bfloat16, 5, 4.0f);
        const mx::array y = linear(context, x, plain.packed);
        const mx::array sum = linear(context, x, plain.packed, {.residual = residual});
        const mx::array silu = linear(context, x, gated.packed, {.gate = Gate{}});
        const mx::array other = linear(context, x, gated.packed, {.gate = kGates[1]});
        for (int row = 0; row + kFew <= rows; row += 97, runs += 4) {
          const mx::array few = matrix_rows(x, row, kFew);
          ASSERT_TRUE(same_bits(matrix_rows(y, row, kFew), linear(context, few, plain.packed)));
          ASSERT_TRUE(same_bits(
              matrix_rows(sum, row, kFew),
              linear(context, few, plain.packed, {.residual = matrix_rows(residual, row, kFew)})));
          ASSERT_TRUE(same_bits(matrix_rows(silu, row, kFew),
                                linear(context, few, gated.packed, {.gate = Gate{}})));
          ASSERT_TRUE(same_bits(matrix_rows(other, row, kFew),
                                linear(context, few, gated.packed, {.gate = kGates[1]})));
        }
      }
      ASSERT_TRUE(kernel_ran(context, "linear", runs, dense_kernel(mx::bfloat16)));
    }
  }
}

// More rows than the kernels take at once.
TEST(LinearFused, ManyRows) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const Context context = make_context(2);
    const Weights w = random_weights(context, 40, 64, mx::bfloat16, /*bias=*/false);
    const mx::array x = random_array({1100, 64}, mx::bfloat16, 1);
    const mx::array norm = random_array({64}, mx::float32, 4);
    const mx::array residual = random_array({1100, 40}, mx::bfloat16, 5);
    const mx::array fused = linear(context, x, w.packed,
                                   {.norm = LinearOptions::Norm{norm, kEps}, .residual = residual});
    const mx::array product = linear(context, rms_norm(context, x, norm, kEps), w.packed);
    EXPECT_TRUE(same_bits(fused, add_rounded(product, residual))) << isa;
  }
}

TEST(LinearFused, TheReferenceComposesTheReferences) {
  for (const mx::Dtype dtype : float_dtypes()) {
    Context context = make_context(1);
    const Weights w = random_weights(context, 34, 70, dtype, /*bias=*/true);
    const Weights gated = random_weights(context, 34, 70, dtype, /*bias=*/true, true);
    const mx::array x = random_array({6, 70}, dtype, 1);
    const mx::array norm = random_array({70}, mx::float32, 4);
    const mx::array residual = random_array({6, 34}, dtype, 5);
    const LinearOptions::Norm by{norm, kEps};
    context.use_reference = true;
    const mx::array normed = rms_norm(context, x, norm, kEps);
    EXPECT_TRUE(same_bits(linear(context, x, w.packed, {.norm = by, .residual = residual}),
                          add_rounded(linear(context, normed, w.packed), residual)));
    EXPECT_TRUE(same_bits(linear(context, x, gated.packed, {.norm = by, .gate = Gate{}}),
                          gated_activation(context, linear(context, normed, w.packed))));
  }
}

TEST(LinearFused, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const Weights w = random_weights(context, 20, 40, mx::bfloat16, /*bias=*/false);
  const Weights gated = random_weights(context, 20, 40, mx::bfloat16, false, true);
  const mx::array x = mx::zeros({2, 40}, mx::bfloat16);
  const mx::array short_norm = mx::zeros({39});
  const auto fails = [&](const Weights& weights, const LinearOptions& options) {
    EXPECT_THROW(linear(context, x, weights.packed, options), std::invalid_argument);
  };
  fails(w, {.norm = LinearOptions::Norm{short_norm, kEps}});
  fails(w, {.residual = mx::zeros({2, 21}, mx::bfloat16)});
  fails(w, {.residual = mx::zeros({2, 20}, mx::float32)});
  fails(w, {.gate = Gate{}});
  fails(gated, {});
  fails(gated, {.residual = mx::zeros({2, 20}, mx::bfloat16), .gate = Gate{}});
}

}  // namespace
}  // namespace quire::ops
