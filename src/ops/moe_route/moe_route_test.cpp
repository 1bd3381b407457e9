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

struct Kind {
  std::string name;
  MoeRouteOptions options;
  bool has_correction = false, has_scale = false;
};

std::vector<Kind> kinds() {
  return {
      {"softmax", {.top_k = 4}},
      {"softmax normalised", {.top_k = 4, .normalise = true}},
      {"softmax capped", {.top_k = 4, .normalise = true, .softcap = 1.5f}},
      {"softmax corrected", {.top_k = 4, .normalise = true, .least_sum = 1e-12f}, true},
      {"softmax in groups", {.top_k = 4, .scale = 2.5f, .groups = 6, .chosen_groups = 2}},
      {"scaled experts", {.top_k = 4, .normalise = true}, false, true},
      {"sigmoid", {.top_k = 4, .score = MoeScore::kSigmoid}},
      {"sigmoid corrected",
       {.top_k = 4, .normalise = true, .score = MoeScore::kSigmoid, .sum_offset = 1e-6f},
       true},
      {"sigmoid in groups",
       {.top_k = 4,
        .normalise = true,
        .score = MoeScore::kSigmoid,
        .scale = 2.5f,
        .groups = 6,
        .chosen_groups = 2,
        .groups_by_two = true},
       true},
      {"sparse mixer", {.top_k = 2, .score = MoeScore::kSparseMixer, .jitter = 0.2f}},
  };
}

MoeRouteArrays arrays_of(const Kind& kind, int experts) {
  MoeRouteArrays arrays;
  if (kind.has_correction) arrays.correction = random_array({experts}, mx::float32, 21, 0.3f);
  if (kind.has_scale) arrays.expert_scale = random_array({experts}, mx::float32, 22);
  return arrays;
}

TEST(MoeRoute, EveryKindMatchesItsReference) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const Kind& kind : kinds()) {
      SCOPED_TRACE(isa + " " + kind.name);
      Context context = make_context(1);
      const mx::array logits = random_array({40, 60}, mx::float32, 5, 2.0f);
      const MoeRouteArrays arrays = arrays_of(kind, 60);
      const MoeRouting kernel = moe_route(context, logits, kind.options, arrays);
      mx::eval(kernel.experts, kernel.weights);
      EXPECT_TRUE(kernel_ran(context, "moe_route", 1));
      context.use_reference = true;
      const MoeRouting reference = moe_route(context, logits, kind.options, arrays);
      EXPECT_TRUE(same_bits(kernel.experts, reference.experts));
      EXPECT_TRUE(near(kernel.weights, reference.weights, {.abs = 0, .rel = 64 * 0x1p-24f}));
    }
  }
}

MoeRouteOptions golden_options(const GoldenFile& golden, const std::string& name) {
  const std::string score = golden.text(name, "score");
  const auto number = [&](const char* key) { return golden.number(name, key); };
  return {.top_k = static_cast<int64_t>(number("top_k")),
          .normalise = number("normalise") != 0,
          .score = score == "sigmoid"        ? MoeScore::kSigmoid
                   : score == "sparse_mixer" ? MoeScore::kSparseMixer
                                             : MoeScore::kSoftmax,
          .sum_offset = number("sum_offset"),
          .least_sum = number("least_sum"),
          .scale = number("scale"),
          .softcap = number("softcap"),
          .jitter = number("jitter"),
          .groups = static_cast<int64_t>(number("groups")),
          .chosen_groups = static_cast<int64_t>(number("chosen_groups")),
          .groups_by_two = number("groups_by_two") != 0};
}

// A row's experts in ascending order, each with its weight: transformers has them in any order.
std::vector<std::pair<int32_t, float>> sorted_row(const MoeRouting& routing, int row) {
  const int k = routing.experts.shape(1);
  std::vector<std::pair<int32_t, float>> pairs;
  for (int i = row * k; i < (row + 1) * k; ++i)
    pairs.emplace_back(routing.experts.data<int32_t>()[i], routing.weights.data<float>()[i]);
  std::ranges::sort(pairs);
  return pairs;
}

void expect_golden(const Context& context, const GoldenFile& golden, const std::string& name) {
  MoeRouteArrays arrays;
  if (golden.has(name, "correction")) arrays.correction = golden.array(name, "correction");
  if (golden.has(name, "expert_scale")) arrays.expert_scale = golden.array(name, "expert_scale");
  const MoeRouteOptions options = golden_options(golden, name);
  const mx::array logits = golden.array(name, "logits");
  const MoeRouting routing = moe_route(context, logits, options, arrays);
  const MoeRouting expected = {golden.array(name, "experts"), golden.array(name, "weights")};
  mx::eval(routing.experts, routing.weights, expected.experts, expected.weights);
  for (int row = 0; row < logits.shape(0); ++row) {
    const auto actual = sorted_row(routing, row), wanted = sorted_row(expected, row);
    for (size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(actual[i].first, wanted[i].first) << "row " << row;
      // Both sides err by what MatchesFloat64 allows.
      EXPECT_NEAR(actual[i].second, wanted[i].second, 128 * 0x1p-24 * std::abs(wanted[i].second));
    }
  }
}

// The routers of transformers, float32 (tools/parity).
TEST(MoeRoute, MatchesGoldenData) {
  const GoldenFile golden("tests/parity/ops/moe_route.safetensors");
  EXPECT_GE(golden.cases().size(), 14u);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const auto& name : golden.cases()) {
      SCOPED_TRACE(isa + " " + name);
      expect_golden(make_context(2), golden, name);
    }
  }
}

TEST(MoeRoute, VectorInstructionsAgreeBitForBit) {
  for (const Kind& kind : kinds()) {
    const mx::array logits = random_array({33, 54}, mx::float32, 6, 2.0f);
    std::optional<MoeRouting> first;
    for (const auto& isa : isas_to_test()) {
      if (isa == "portable" || isa == "neon") continue;
      SCOPED_TRACE(isa + " " + kind.name);
      const ForcedIsa forced(isa);
      const MoeRouting routing =
          moe_route(make_context(2), logits, kind.options, arrays_of(kind, 54));
      mx::eval(routing.experts, routing.weights);
      if (!first) first = routing;
      EXPECT_TRUE(same_bits(routing.experts, first->experts));
      EXPECT_TRUE(same_bits(routing.weights, first->weights));
    }
  }
}

std::vector<int32_t> experts_of(const std::vector<float>& logits, const MoeRouteOptions& options) {
  const int count = static_cast<int>(logits.size());
  const mx::array row(logits.data(), {1, count}, mx::float32);
  const MoeRouting routing = moe_route(make_context(1), row, options);
  mx::eval(routing.experts);
  const int32_t* experts = routing.experts.data<int32_t>();
  return {experts, experts + options.top_k};
}

TEST(MoeRoute, OfEqualExpertsTheLowerIndexComesFirst) {
  using Experts = std::vector<int32_t>;
  EXPECT_EQ(experts_of({1, 3, 3, 0, 3, 1}, {.top_k = 4}), (Experts{1, 2, 4, 0}));
  const std::vector<float> tied = {1, 1, 0, 2, 2, 0, 2, 0};
  EXPECT_EQ(experts_of(tied, {.top_k = 3, .score = MoeScore::kSigmoid}), (Experts{3, 4, 6}));
  EXPECT_EQ(experts_of(tied, {.top_k = 2, .score = MoeScore::kSparseMixer}), (Experts{3, 4}));
  // Of four groups the second, third and fourth are as good as each other.
  EXPECT_EQ(experts_of(tied, {.top_k = 3, .groups = 4, .chosen_groups = 2}), (Experts{3, 4, 2}));
}

TEST(MoeRoute, ARowWithANanGoesToTheFirstExpertsWithoutWeights) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const Kind& kind : kinds()) {
      SCOPED_TRACE(isa + " " + kind.name);
      std::vector<float> values(3 * 54, 0.5f);
      values[54 + 40] = std::nanf("");
      const mx::array logits(values.data(), {3, 54}, mx::float32);
      const MoeRouting routing =
          moe_route(make_context(1), logits, kind.options, arrays_of(kind, 54));
      mx::eval(routing.experts, routing.weights);
      const auto k = static_cast<int>(kind.options.top_k);
      for (int i = 0; i < 3 * k; ++i) {
        EXPECT_EQ(std::isnan(routing.weights.data<float>()[i]), i / k == 1);
        if (i / k == 1) {
          EXPECT_EQ(routing.experts.data<int32_t>()[i], i % k);
        }
      }
    }
  }
}

TEST(MoeRoute, ARowDependsOnItselfAlone) {
  for (const Kind& kind : kinds()) {
    SCOPED_TRACE(kind.name);
    const Context context = make_context(2);
    const MoeRouteArrays arrays = arrays_of(kind, 126);
    const mx::array logits = random_array({65, 126}, mx::float32, 9, 2.0f);
    const MoeRouting all = moe_route(context, logits, kind.options, arrays);
    for (const int t : {0, 1, 31, 64}) {
      const mx::array one = mx::contiguous(mx::slice(logits, {t, 0}, {t + 1, 126}));
      const MoeRouting alone = moe_route(context, one, kind.options, arrays);
      const int k = static_cast<int>(kind.options.top_k);
      EXPECT_TRUE(same_bits(alone.weights, mx::slice(all.weights, {t, 0}, {t + 1, k})));
      EXPECT_TRUE(same_bits(alone.experts, mx::slice(all.experts, {t, 0}, {t + 1, k})));
    }
  }
}

TEST(MoeRoute, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const auto refuses = [&](const MoeRouteOptions& options) {
    EXPECT_THROW(moe_route(context, mx::zeros({1, 4}), options), std::invalid_argument);
  };
  refuses({.top_k = 5});
  refuses({.top_k = 0});
  refuses({.top_k = 1, .groups = 3});
  refuses({.top_k = 1, .groups = 2, .chosen_groups = 3});
  refuses({.top_k = 3, .groups = 2, .chosen_groups = 1});
  refuses({.top_k = 1, .groups = 4, .chosen_groups = 1, .groups_by_two = true});
  refuses({.top_k = 3, .score = MoeScore::kSparseMixer});
  EXPECT_THROW(moe_route(context, mx::zeros({1, 4}, mx::bfloat16), {}), std::invalid_argument);
  EXPECT_THROW(moe_route(context, mx::zeros({1, 4}), {}, {.correction = mx::zeros({3})}),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
