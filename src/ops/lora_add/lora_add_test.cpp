#include "ops/lora_add/lora_add.h"

#include "ops/linear/linear_test_util.h"
#include "ops/rms_norm/rms_norm.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr int kWidth = 70, kOutputs = 50;
constexpr float kEps = 1e-6f;

// Two adapters of different ranks, and one that leaves the layer as it is.
struct Adapters {
  std::vector<mx::array> a, b;
  LoraWeightsPtr packed;
};

Adapters two_adapters(const Context& context, mx::Dtype dtype) {
  Adapters adapters;
  LoraWeights weights;
  for (const int rank : {3, 40}) {
    const auto seed = static_cast<uint32_t>(rank);
    const Weights a = [&] {
      const mx::array rows = random_array({rank, kWidth}, dtype, seed, 0.1f);
      const RowMatrix source = {rows.data<void>(), rank, kWidth, dtype};
      return Weights{rows, {.weight = pack_matrix(context, {&source, 1}, dtype)}};
    }();
    const Weights b = random_weights(context, kOutputs, rank, dtype, false);
    adapters.a.push_back(a.rows);
    adapters.b.push_back(b.rows);
    weights.emplace_back(LoraPair{.a = a.packed.weight, .b = b.packed.weight});
  }
  weights.emplace_back(std::nullopt);
  adapters.packed = std::make_shared<const LoraWeights>(std::move(weights));
  return adapters;
}

AdapterRowsPtr rows_of(std::vector<AdapterRows::Group> groups) {
  return std::make_shared<const AdapterRows>(AdapterRows{std::move(groups)});
}

class LoraAdd : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "no kernel on cuda";
  }
};

// y is given away: each call gets a sum of its own, which nothing else reads (mx::copy shares).
mx::array apply(const Context& context, const mx::array& x, const mx::array& y,
                const Adapters& adapters, const AdapterRowsPtr& rows,
                const std::optional<LinearOptions::Norm>& norm = std::nullopt) {
  const mx::array own = y + mx::zeros({1}, y.dtype());
  mx::eval(own);
  mx::array result = lora_add(context, x, own, adapters.packed, rows, norm);
  mx::eval(result);
  return result;
}

// float64 products of the values, rounded where the header says.
TEST_F(LoraAdd, IsTheRoundedProductsOfItsRows) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      SCOPED_TRACE(isa + " " + dtype_name(dtype));
      const Context context = make_context(2);
      const Adapters adapters = two_adapters(context, dtype);
      const int tokens = 9;
      const mx::array x = random_array({tokens, kWidth}, dtype, 1);
      const mx::array y = random_array({tokens, kOutputs}, dtype, 2);
      const std::vector<int> adapter_of = {-1, 0, 1, -1, 1, 1, 2, 0, -1};
      const mx::array result =
          apply(context, x, y, adapters, rows_of({{0, {1, 7}}, {1, {2, 4, 5}}, {2, {6}}}));
      const auto xs = to_floats(x), ys = to_floats(y), got = to_floats(result);
      const double u = unit_roundoff(dtype);
      for (int t = 0; t < tokens; ++t) {
        const int which = adapter_of[static_cast<size_t>(t)];
        for (int n = 0; n < kOutputs; ++n) {
          const auto at = static_cast<size_t>(t * kOutputs + n);
          if (which < 0 || which > 1) {
            ASSERT_EQ(got[at], ys[at]) << "row " << t;
            continue;
          }
          const auto a = to_floats(adapters.a[static_cast<size_t>(which)]);
          const auto b = to_floats(adapters.b[static_cast<size_t>(which)]);
          const size_t rank = a.size() / kWidth;
          double sum = 0, magnitude = 0;
          for (size_t r = 0; r < rank; ++r) {
            double low = 0, low_magnitude = 0;
            for (size_t k = 0; k < kWidth; ++k) {
              const double term =
                  static_cast<double>(xs[static_cast<size_t>(t) * kWidth + k]) * a[r * kWidth + k];
              low += term;
              low_magnitude += std::abs(term);
            }
            sum += low * b[static_cast<size_t>(n) * rank + r];
            magnitude += low_magnitude * std::abs(b[static_cast<size_t>(n) * rank + r]);
          }
          // Each of the three roundings, and float32 sums of less than 128 terms.
          const double bound = 4 * u * (magnitude + std::abs(ys[at])) + 0x1p-17 * magnitude;
          ASSERT_NEAR(got[at], sum + ys[at], bound) << "row " << t << " column " << n;
        }
      }
      EXPECT_TRUE(kernel_ran(context, "lora_add", 1));
    }
  }
}

TEST_F(LoraAdd, GivesARowTheSameBitsAloneAndInCompany) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      SCOPED_TRACE(isa + " " + dtype_name(dtype));
      const Context context = make_context(3);
      const Adapters adapters = two_adapters(context, dtype);
      const int tokens = 300;
      const mx::array x = random_array({tokens, kWidth}, dtype, 1);
      const mx::array y = random_array({tokens, kOutputs}, dtype, 2);
      const LinearOptions::Norm norm{random_array({kWidth}, mx::float32, 3), kEps};
      AdapterRows::Group first = {.adapter = 0, .rows = {}}, second = {.adapter = 1, .rows = {}};
      for (int t = 0; t < tokens; ++t)
        if (t % 3 != 0) (t % 7 == 0 ? second : first).rows.push_back(t);
      const mx::array all = apply(context, x, y, adapters, rows_of({first, second}), norm);
      EXPECT_FALSE(same_bits(all, y));
      for (const int t : {1, 7, 20, 298}) {
        const int adapter = t % 7 == 0 ? 1 : 0;
        const mx::array alone = apply(context, matrix_rows(x, t, 1), matrix_rows(y, t, 1), adapters,
                                      rows_of({{adapter, {0}}}), norm);
        ASSERT_TRUE(same_bits(alone, matrix_rows(all, t, 1))) << "row " << t;
      }
      for (const int t : {0, 3, 299})
        if (t % 3 == 0) {
          ASSERT_TRUE(same_bits(matrix_rows(all, t, 1), matrix_rows(y, t, 1)));
        }
      const mx::array normed = rms_norm(context, x, norm.weight, kEps);
      ASSERT_TRUE(same_bits(all, apply(context, normed, y, adapters, rows_of({first, second}))));
    }
  }
}

TEST_F(LoraAdd, IsNearItsReference) {
  Context context = make_context(2);
  const Adapters adapters = two_adapters(context, mx::float32);
  const mx::array x = random_array({5, kWidth}, mx::float32, 1);
  const mx::array y = random_array({5, kOutputs}, mx::float32, 2);
  const AdapterRowsPtr rows = rows_of({{0, {4}}, {1, {0, 2}}});
  const LinearOptions::Norm norm{random_array({kWidth}, mx::float32, 3), kEps};
  const mx::array fast = apply(context, x, y, adapters, rows, norm);
  context.use_reference = true;
  EXPECT_TRUE(near(fast, apply(context, x, y, adapters, rows, norm), {.abs = 2e-4f, .rel = 1e-5f}));
}

TEST_F(LoraAdd, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const Adapters adapters = two_adapters(context, mx::float32);
  const AdapterRowsPtr rows = rows_of({{0, {0}}});
  const auto add = [&](const mx::array& x, const mx::array& y) {
    return lora_add(context, x, y, adapters.packed, rows);
  };
  EXPECT_THROW(add(mx::zeros({2, kWidth + 1}), mx::zeros({2, kOutputs})), std::invalid_argument);
  EXPECT_THROW(add(mx::zeros({2, kWidth}), mx::zeros({2, kOutputs + 1})), std::invalid_argument);
  EXPECT_THROW(add(mx::zeros({2, kWidth}), mx::zeros({3, kOutputs})), std::invalid_argument);
  EXPECT_THROW(add(mx::zeros({2, kWidth}, mx::float16), mx::zeros({2, kOutputs}, mx::float16)),
               std::invalid_argument);
}

TEST(LoraApplies, IsTrueWhereAnAdapterOfTheStepChangesTheLayer) {
  LoraWeights weights(2);
  weights[1] = LoraPair{};
  EXPECT_FALSE(lora_applies(weights, {{{0, {3}}}}));
  EXPECT_TRUE(lora_applies(weights, {{{0, {3}}, {1, {4}}}}));
}

}  // namespace
}  // namespace quire::ops
