#include "ops/linear/linear.h"

#include "ops/linear/linear_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// Against float64. With u = 2^-24, each chain of 16 fused steps errs by 16 u, their sum by one
// more, and the sum over the chunks by one per chunk, all relative to sum |x w|; vdpbf16ps has one
// chain of K steps; bias one more, and
// one for products that the portable kernel rounds. The result is rounded once to its dtype.
::testing::AssertionResult near_float64(const mx::array& y, const mx::array& x, const Weights& w) {
  const auto actual = to_floats(y), a = to_floats(x), b = to_floats(w.rows);
  const auto bias = w.packed.bias ? to_floats(*w.packed.bias) : std::vector<float>(y.shape(1));
  const int k = x.shape(1), n = y.shape(1);
  const double u = unit_roundoff(mx::float32), u_out = unit_roundoff(y.dtype());
  // A pair of bfdot has two roundings to odd, by twice as much as to the nearest.
  const bool one_chain = use_avx512_bf16() || use_neon_bf16();
  const double steps = (one_chain ? k : 16 + 1 + linear_chunks(k)) + 2;
  for (int t = 0; t < y.shape(0); ++t) {
    for (int j = 0; j < n; ++j) {
      double exact = bias[j], magnitude = std::abs(bias[j]);
      for (int i = 0; i < k; ++i) {
        const double product = static_cast<double>(a[t * k + i]) * b[j * k + i];
        exact += product;
        magnitude += std::abs(product);
      }
      const double bound = 1.01 * steps * u * magnitude + u_out * std::abs(exact) + 1e-7;
      const double error = std::abs(actual[t * n + j] - exact);
      if (!(error <= bound))
        return ::testing::AssertionFailure()
               << "[" << t << ", " << j << "] is off by " << error << ", more than " << bound;
    }
  }
  return ::testing::AssertionSuccess();
}

TEST(Linear, IsWithinItsErrorBoundOfFloat64) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [n, k] : {std::pair(1, 1), {16, 32}, {17, 33}, {70, 100}, {33, 300}}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " " + std::to_string(n));
        const Context context = make_context(2);
        const Weights w = random_weights(context, n, k, dtype, /*bias=*/n % 2 == 1);
        const mx::array x = random_array({19, k}, dtype, 1);
        EXPECT_TRUE(near_float64(linear(context, x, w.packed), x, w));
        EXPECT_TRUE(near_float64(linear(context, x, w.packed, {.out_dtype = mx::float32}), x, w));
        EXPECT_TRUE(near_float64(linear(context, x, w.packed, {.out_dtype = mx::float16}), x, w));
        EXPECT_TRUE(kernel_ran(context, "linear", 3, dense_kernel(dtype)));
      }
    }
  }
}

// The bits contract: a row has the same bits whatever else is in the call, for any threads.
TEST(Linear, RowsDoNotDependOnTheBatch) {
  constexpr int kRows = 512;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [n, k] : {std::pair(70, 100), {48, 1056}}) {
        const Context one_thread = make_context(1);
        const Weights w = random_weights(one_thread, n, k, dtype, /*bias=*/true);
        const mx::array x = random_array({kRows, k}, dtype, 1);
        const mx::array whole = linear(one_thread, x, w.packed, {.out_dtype = mx::float32});
        for (const int threads : {1, 2, 3}) {
          const Context context = make_context(threads);
          int runs = 0;
          for (const int m : kRowCounts) {
            SCOPED_TRACE(isa + " " + dtype_name(dtype) + " " + std::to_string(m) + " rows, " +
                         std::to_string(threads) + " threads");
            const int begin = (kRows - m) / 2;  // other rows, in other places of a tile
            const mx::array y =
                linear(context, matrix_rows(x, begin, m), w.packed, {.out_dtype = mx::float32});
            ASSERT_TRUE(same_bits(y, matrix_rows(whole, begin, m)));
            ASSERT_TRUE(kernel_ran(context, "linear", ++runs, dense_kernel(dtype)));
          }
        }
      }
    }
  }
}

// x [T, K] times w [N, K] plus bias, in the order of the matrix unit, written down once more
// without any blocking; or, as a control, in one chain.
mx::array multiply_in_order(const mx::array& x, const Weights& w, bool one_chain) {
  const auto a = to_floats(x), b = to_floats(w.rows), bias = to_floats(*w.packed.bias);
  const int k = x.shape(1), n = w.rows.shape(0);
  std::vector<float> y;
  for (int t = 0; t < x.shape(0); ++t) {
    for (int j = 0; j < n; ++j) {
      float sum = 0, chain = 0;
      for (int chunk = 0; chunk < k; chunk += 32) {
        float halves[2] = {0, 0};
        for (int i = chunk; i < std::min(k, chunk + 32); ++i) {
          halves[i % 2] = std::fma(a[t * k + i], b[j * k + i], halves[i % 2]);
          chain = std::fma(a[t * k + i], b[j * k + i], chain);
        }
        sum += halves[0] + halves[1];
      }
      y.push_back((one_chain ? chain : sum) + bias[j]);
    }
  }
  return mx::array(y.data(), {x.shape(0), n}, mx::float32);
}

float round_to_odd(double value) {
  float rounded = static_cast<float>(value);
  if (std::abs(rounded) > std::abs(value)) rounded = std::nextafter(rounded, 0.0f);
  return rounded == value ? rounded : bits_to_float(float_to_bits(rounded) | 1);
}

// The same by pairs of k, as ARM's manual has it of BFDOT: rounded to odd are the sum of two
// products, which are exact, and its sum with the chain. All of these are exact in double.
mx::array multiply_in_pairs(const mx::array& x, const Weights& w) {
  const auto a = to_floats(x), b = to_floats(w.rows), bias = to_floats(*w.packed.bias);
  const int k = x.shape(1), n = w.rows.shape(0);
  const auto add = [](double first, double second) {
    const double sum = first + second;
    EXPECT_TRUE(sum - first == second && sum - second == first) << "not exact";
    return round_to_odd(sum);
  };
  std::vector<float> y;
  for (int t = 0; t < x.shape(0); ++t) {
    for (int j = 0; j < n; ++j) {
      const auto product = [&](int i) { return static_cast<double>(a[t * k + i]) * b[j * k + i]; };
      float chain = 0;
      for (int i = 0; i < k; i += 2) chain = add(chain, add(product(i), product(i + 1)));
      y.push_back(chain + bias[j]);
    }
  }
  return mx::array(y.data(), {x.shape(0), n}, mx::float32);
}

TEST(Linear, AddsInThePromisedOrder) {
  const Context context = make_context(1);
  const Weights w = random_weights(context, 18, 150, mx::bfloat16, /*bias=*/true);
  const mx::array x = random_array({3, 150}, mx::bfloat16, 1);
  const mx::array oracle = multiply_in_order(x, w, /*one_chain=*/false);
  const mx::array by_pairs = multiply_in_pairs(x, w);
  EXPECT_FALSE(same_bits(oracle, multiply_in_order(x, w, /*one_chain=*/true)));
  EXPECT_FALSE(same_bits(oracle, by_pairs));
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const mx::array y = linear(context, x, w.packed, {.out_dtype = mx::float32});
    // Without fused instructions the portable kernel keeps the order only; vdpbf16ps has another.
    if (isa == "portable" || isa == "avx512_bf16") {
      EXPECT_TRUE(near(y, oracle, {.abs = 1e-5f}));
    } else {
      EXPECT_TRUE(same_bits(y, isa == "neon_bf16" ? by_pairs : oracle)) << isa;
    }
  }
}

// AMX, AVX-512 and AVX2 compute the same bits; with portable bits vdpbf16ps steps aside and joins.
// So does bfdot, and joins NEON.
TEST(Linear, InstructionSetsAgreeBitForBit) {
  const auto isas = isas_to_test();
  const char* usual = has_cpu_isa("neon_bf16") ? "neon" : "avx2";
  if (isas.size() < 3 && !has_cpu_isa("neon_bf16"))
    GTEST_SKIP() << "needs AVX2 and AVX-512, or NEON and its BF16";
  for (const mx::Dtype dtype : float_dtypes()) {
    for (const int rows : {1, 5, 16, 17, 37, 100}) {
      const Context context = make_context(2);
      const Weights w = random_weights(context, 70, 500, dtype, /*bias=*/true);
      const mx::array x = random_array({rows, 500}, dtype, 1);
      const auto compute = [&](const std::string& isa, bool portable) {
        const ForcedIsa forced(isa);
        set_portable_bits(portable);
        mx::array y = linear(context, x, w.packed, {.out_dtype = mx::float32});
        mx::eval(y);
        set_portable_bits(false);
        return y;
      };
      const mx::array expected = compute(usual, false);
      for (const auto& isa : isas) {
        if (isa == "portable") continue;
        EXPECT_TRUE(same_bits(compute(isa, true), expected)) << isa << " " << dtype_name(dtype);
        const auto plain = same_bits(compute(isa, false), expected);
        // They differ, or the switch would do nothing.
        const bool has_own = isa == "avx512_bf16" || isa == "neon_bf16";
        const bool own_bits = has_own && dtype == mx::bfloat16;
        EXPECT_EQ(static_cast<bool>(plain), !own_bits) << isa << " " << dtype_name(dtype);
      }
    }
  }
}

TEST(Linear, MatchesItsReference) {
  for (const mx::Dtype dtype : float_dtypes()) {
    Context context = make_context(2);
    const Weights w = random_weights(context, 50, 200, dtype, /*bias=*/true);
    const mx::array x = random_array({9, 200}, dtype, 1);
    const mx::array y = linear(context, x, w.packed);
    context.use_reference = true;
    const mx::array reference = linear(context, x, w.packed);
    // Both are within K u sum |x w| of the exact value, about 200 * 2^-24 * 80, then rounded.
    EXPECT_TRUE(near(y, reference, {.abs = 2e-3f, .rel = 2 * unit_roundoff(dtype)}));
    EXPECT_TRUE(near_float64(reference, x, w));
    EXPECT_EQ(context.kernels->count("linear", "reference"), 1);
  }
}

TEST(Linear, NoRowsGiveNoRows) {
  const Context context = make_context(2);
  const Weights w = random_weights(context, 20, 40, mx::bfloat16, /*bias=*/true);
  const mx::array y = linear(context, mx::zeros({0, 40}, mx::bfloat16), w.packed);
  EXPECT_EQ(to_floats(y).size(), 0u);
  EXPECT_EQ(y.shape(), (mx::Shape{0, 20}));
}

// A NaN or an infinity stays in its own row and column, padding of K and N included.
TEST(Linear, InfinitiesStayInTheirRow) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const Context context = make_context(1);
    const Weights w = random_weights(context, 20, 40, mx::float32, /*bias=*/false);
    std::vector<float> values(2 * 40, 1.0f);
    values[39] = INFINITY;
    const auto y = to_floats(linear(context, mx::array(values.data(), {2, 40}), w.packed));
    for (int j = 0; j < 20; ++j) {
      EXPECT_FALSE(std::isfinite(y[j]));
      EXPECT_TRUE(std::isfinite(y[20 + j]));
    }
  }
}

TEST(Linear, AGraphOutlivesItsCaller) {
  std::optional<mx::array> y;
  {
    const Context context = make_context(2);
    const Weights w = random_weights(context, 20, 40, mx::float32, /*bias=*/true);
    y = linear(context, random_array({5, 40}, mx::float32, 1), w.packed);
  }
  const Context context = make_context(1);
  const Weights w = random_weights(context, 20, 40, mx::float32, /*bias=*/true);
  EXPECT_TRUE(same_bits(*y, linear(context, random_array({5, 40}, mx::float32, 1), w.packed)));
}

TEST(Linear, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  Weights w = random_weights(context, 20, 40, mx::bfloat16, /*bias=*/false);
  EXPECT_THROW(linear(context, mx::zeros({2, 41}, mx::bfloat16), w.packed), std::invalid_argument);
  EXPECT_THROW(linear(context, mx::zeros({40}, mx::bfloat16), w.packed), std::invalid_argument);
  EXPECT_THROW(linear(context, mx::zeros({2, 40}, mx::float32), w.packed), std::invalid_argument);
  EXPECT_THROW(
      linear(context, mx::zeros({2, 40}, mx::bfloat16), w.packed, {.out_dtype = mx::int32}),
      std::invalid_argument);
  w.packed.bias = mx::zeros({21}, mx::float32);
  EXPECT_THROW(linear(context, mx::zeros({2, 40}, mx::bfloat16), w.packed), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
