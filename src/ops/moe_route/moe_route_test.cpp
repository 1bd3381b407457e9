#include "ops/moe_route/moe_route.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/runtime/test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// Softmax in float64 and a stable sort: what a row must be.
struct Row {
  std::vector<int32_t> experts;
  std::vector<double> weights;
};
Row expected_row(const float* logits, int count, const MoeRouteOptions& options) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  double sum = 0, chosen = 0;
  for (int e = 0; e < count; ++e)
    sum += std::exp(static_cast<double>(logits[e]) - logits[order[0]]);
  order.resize(static_cast<size_t>(options.top_k));
  Row row{.experts = order, .weights = {}};
  for (const int32_t e : order)
    chosen += std::exp(static_cast<double>(logits[e]) - logits[order[0]]) / sum;
  for (const int32_t e : order) {
    const double p = std::exp(static_cast<double>(logits[e]) - logits[order[0]]) / sum;
    row.weights.push_back(options.normalise ? p / chosen : p);
  }
  return row;
}

TEST(MoeRoute, MatchesFloat64) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const auto& [rows, experts, k] :
         {std::tuple(1, 1, 1), {3, 7, 2}, {5, 60, 4}, {64, 128, 8}, {33, 512, 10}, {2, 16, 16}}) {
      for (const bool normalise : {false, true}) {
        SCOPED_TRACE(isa + " experts " + std::to_string(experts));
        const Context context = make_context(2);
        const mx::array logits = random_array({rows, experts}, mx::float32, 1, 2.0f);
        const MoeRouteOptions options = {.top_k = k, .normalise = normalise};
        const MoeRouting routing = moe_route(context, logits, options);
        mx::eval(routing.experts, routing.weights);
        for (int t = 0; t < rows; ++t) {
          const Row row = expected_row(logits.data<float>() + t * experts, experts, options);
          for (int i = 0; i < k; ++i) {
            ASSERT_EQ(routing.experts.data<int32_t>()[t * k + i], row.experts[i]);
            // exp errs by an ulp, and so does each of the additions to a sum of 512 at most.
            ASSERT_NEAR(routing.weights.data<float>()[t * k + i], row.weights[i],
                        64 * 0x1p-24 * row.weights[i]);
          }
        }
        EXPECT_TRUE(kernel_ran(context, "moe_route", 1));
      }
    }
  }
}

TEST(MoeRoute, MatchesItsReference) {
  Context context = make_context(1);
  const mx::array logits = random_array({40, 60}, mx::float32, 5, 2.0f);
  const MoeRouteOptions options = {.top_k = 4, .normalise = false};
  const MoeRouting kernel = moe_route(context, logits, options);
  context.use_reference = true;
  const MoeRouting reference = moe_route(context, logits, options);
  EXPECT_TRUE(same_bits(kernel.experts, reference.experts));
  EXPECT_TRUE(near(kernel.weights, reference.weights, {.abs = 0, .rel = 64 * 0x1p-24f}));
}

TEST(MoeRoute, OfEqualExpertsTheLowerIndexComesFirst) {
  const Context context = make_context(1);
  const std::vector<float> values = {1, 3, 3, 0, 3, 1};
  const MoeRouting routing =
      moe_route(context, mx::array(values.data(), {1, 6}, mx::float32), {.top_k = 4});
  mx::eval(routing.experts);
  const int32_t* experts = routing.experts.data<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(experts, experts + 4), (std::vector<int32_t>{1, 2, 4, 0}));
}

TEST(MoeRoute, ARowDependsOnItselfAlone) {
  const Context context = make_context(2);
  const mx::array logits = random_array({65, 128}, mx::float32, 9, 2.0f);
  const MoeRouteOptions options = {.top_k = 8, .normalise = true};
  const MoeRouting all = moe_route(context, logits, options);
  for (const int t : {0, 1, 31, 64}) {
    const mx::array one = mx::contiguous(mx::slice(logits, {t, 0}, {t + 1, 128}));
    const MoeRouting alone = moe_route(context, one, options);
    EXPECT_TRUE(same_bits(alone.weights, mx::slice(all.weights, {t, 0}, {t + 1, 8})));
    EXPECT_TRUE(same_bits(alone.experts, mx::slice(all.experts, {t, 0}, {t + 1, 8})));
  }
}

TEST(MoeRoute, RefusesMoreExpertsThanThereAre) {
  const Context context = make_context(1);
  EXPECT_THROW(moe_route(context, mx::zeros({1, 4}), {.top_k = 5}), std::invalid_argument);
  EXPECT_THROW(moe_route(context, mx::zeros({1, 4}), {.top_k = 0}), std::invalid_argument);
  EXPECT_THROW(moe_route(context, mx::zeros({1, 4}, mx::bfloat16), {}), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
