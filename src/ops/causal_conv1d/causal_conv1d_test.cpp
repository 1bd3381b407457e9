#include "ops/causal_conv1d/causal_conv1d.h"

#include "ops/layout/state_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

struct Shape {
  int kernel = 4, channels = 100, row = 130;  // row: of x
};
constexpr Shape kShapes[] = {{4, 100, 130}, {2, 33, 33}, {8, 40, 41}, {3, 600, 700}};
constexpr int kSlots = 5;

mx::array weight_of(const Shape& s) { return random_array({s.kernel, s.channels}, mx::float32, 1); }
mx::array input(const Shape& s, int tokens, mx::Dtype dtype) {
  return random_array({tokens, s.row}, dtype, 2, 2.0f);
}
mx::Shape pool_shape(const Shape& s) { return {kSlots, s.kernel - 1, s.channels}; }

// The sum of `kernel` products in another order, the exponential, one rounding.
Bound bound(const Shape& s, mx::Dtype dtype) {
  return {.abs = static_cast<float>(s.kernel) * 1e-6f,
          .rel = 1e-5f + (dtype == mx::float32 ? 0 : 2 * unit_roundoff(dtype))};
}

TEST(CausalConv1d, MatchesItsReference) {
  // A chunk that goes on, one token that does, a sequence that begins, none, shorter than the taps.
  const auto layout = layout_of_chunks({{1, 9, 3}, {1, 0, 1}, {0, 4, 0}, {2, 30, 4}, {37, 0, 2}});
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const Shape& s : kShapes) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " kernel " + std::to_string(s.kernel));
        Context context = make_context(2);
        const mx::array x = input(s, 41, dtype), pool = random_array(pool_shape(s), dtype, 3);
        context.use_reference = true;
        const auto expected = causal_conv1d(context, x, weight_of(s), pool, layout);
        mx::eval(expected.y, expected.state);  // before the kernel writes into the pool
        context.use_reference = false;
        const auto actual = causal_conv1d(context, x, weight_of(s), pool, layout);
        mx::eval(actual.y, actual.state);
        EXPECT_TRUE(near(actual.y, expected.y, bound(s, dtype)));
        EXPECT_TRUE(same_bits(actual.state, expected.state));
        EXPECT_EQ(actual.state.data<char>(), pool.data<char>()) << "not in place";
        EXPECT_TRUE(kernel_ran(context, "causal_conv1d", 1));
        EXPECT_EQ(context.kernels->count("causal_conv1d", "reference"), 1);
      }
    }
  }
}

TEST(CausalConv1d, MatchesGoldenData) {
  const GoldenFile golden("tests/parity/ops/causal_conv1d.safetensors");
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const auto& name : golden.cases()) {
      SCOPED_TRACE(isa + " " + name);
      const mx::array x = golden.array(name, "x");
      const mx::array weight = mx::contiguous(mx::transpose(golden.array(name, "weight")));
      const mx::array pool = poisoned_pool({2, weight.shape(0) - 1, weight.shape(1)}, mx::float32);
      const auto result =
          causal_conv1d(make_context(2), x, weight, pool, layout_of_chunks({{x.shape(0), 0, 1}}));
      EXPECT_TRUE(near(result.y, golden.array(name, "out"), {.abs = 1e-5f, .rel = 1e-5f}));
    }
  }
}

// The bits contract: a sequence in chunks among others is the sequence alone and whole, outputs and
// state.
TEST(CausalConv1d, ChunksAndNeighboursDoNotMatter) {
  const Shape s{4, 300, 300};
  constexpr int kTokens = 130;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const mx::array x = input(s, kTokens, mx::bfloat16), weight = weight_of(s);
    const auto whole =
        causal_conv1d(make_context(1), x, weight, poisoned_pool(pool_shape(s), mx::bfloat16),
                      layout_of_chunks({{kTokens, 0, 2}}));
    for (const std::vector<int>& cuts : {std::vector{1}, {2, 5}, {64, 1, 33}, {129}}) {
      for (const int threads : {1, 3}) {
        mx::array pool = poisoned_pool(pool_shape(s), mx::bfloat16);
        std::vector<mx::array> outputs;
        for (int t = 0, i = 0; t < kTokens; ++i) {
          const int n = std::min(cuts[i % cuts.size()], kTokens - t);
          // A neighbour before it, at the same rows as the first tokens of x.
          const mx::array both = mx::concatenate({rows_of(x, 0, 3), rows_of(x, t, t + n)}, 0);
          const auto step = causal_conv1d(make_context(threads), mx::contiguous(both), weight, pool,
                                          layout_of_chunks({{3, 0, 0}, {n, t, 2}}));
          outputs.push_back(rows_of(step.y, 3, 3 + n));
          pool = step.state;
          t += n;
        }
        EXPECT_TRUE(same_bits(mx::concatenate(outputs, 0), whole.y)) << isa << " " << cuts[0];
        EXPECT_TRUE(same_bits(rows_of(pool, 2, 3), rows_of(whole.state, 2, 3)));
      }
    }
  }
}

TEST(CausalConv1d, ASequenceWithoutASlotIsLeftOut) {
  const Shape s{4, 300, 300};
  const mx::array x = input(s, 4, mx::bfloat16), weight = weight_of(s);
  const mx::array alone = poisoned_pool(pool_shape(s), mx::bfloat16);
  const mx::array padded = poisoned_pool(pool_shape(s), mx::bfloat16);
  const auto expected = causal_conv1d(make_context(1), rows_of(x, 0, 3), weight, alone,
                                      layout_of_chunks({{3, 0, 1}}));
  const auto actual = causal_conv1d(make_context(1), x, weight, padded,
                                    layout_of_chunks({{3, 0, 1}, {1, 0, kNoStateSlot}}));
  EXPECT_TRUE(same_bits(rows_of(actual.y, 0, 3), expected.y));
  EXPECT_TRUE(same_bits(actual.state, expected.state));
}

TEST(CausalConv1d, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const auto layout = layout_of_chunks({{2, 0, 4}});
  const mx::array x = mx::zeros({2, 8}), weight = mx::zeros({4, 8}), pool = mx::zeros({5, 3, 8});
  const auto run = [&](const mx::array& a, const mx::array& w, const mx::array& p,
                       const BatchLayoutPtr& l) { return causal_conv1d(context, a, w, p, l); };
  EXPECT_NO_THROW(run(x, weight, pool, layout));
  EXPECT_THROW(run(mx::zeros({3, 8}), weight, pool, layout), std::invalid_argument);
  EXPECT_THROW(run(mx::zeros({2, 7}), weight, pool, layout), std::invalid_argument);
  EXPECT_THROW(run(x, mx::zeros({1, 8}), mx::zeros({5, 0, 8}), layout), std::invalid_argument);
  EXPECT_THROW(run(x, mx::zeros({9, 8}), mx::zeros({5, 8, 8}), layout), std::invalid_argument);
  EXPECT_THROW(run(x, weight, mx::zeros({5, 2, 8}), layout), std::invalid_argument);
  EXPECT_THROW(run(x, weight, mx::zeros({5, 3, 8}, mx::float16), layout), std::invalid_argument);
  EXPECT_THROW(run(x, weight, mx::zeros({4, 3, 8}), layout), std::invalid_argument);
  EXPECT_THROW(run(x, weight, pool, layout_of_chunks({{2, 0, -2}})), std::invalid_argument);
  EXPECT_THROW(run(x, weight, pool, layout_of_chunks({{1, 0, 1}, {1, 0, 1}})),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
