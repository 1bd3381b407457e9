#include "ops/gated_delta_rule/gated_delta_rule.h"

#include "ops/gated_delta_rule/gated_delta_rule_cpu.h"
#include "ops/gated_delta_rule/gated_delta_rule_reference.h"
#include "ops/layout/state_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

struct Shape {
  int k_heads = 2, v_heads = 4, k_dim = 16, v_dim = 24;
  int width() const { return 2 * k_heads * k_dim + v_heads * v_dim; }
};
constexpr Shape kShapes[] = {{2, 4, 16, 24},   {2, 2, 64, 64},  {1, 3, 12, 71},
                             {1, 2, 128, 128}, {1, 1, 256, 80}, {2, 6, 8, 8}};
constexpr int kSlots = 4;

struct Inputs {
  mx::array qkv;
  DeltaGates gates;
};

// a and b stand among other columns, as in a fused projection.
Inputs inputs_of(const Shape& s, int tokens, mx::Dtype dtype, uint32_t seed = 1) {
  const int h = s.v_heads;
  return {.qkv = random_array({tokens, s.width()}, dtype, seed),
          .gates = {.projected = random_array({tokens, 2 * h + 9}, dtype, seed + 1, 2.0f),
                    .a_column = 5 + h,
                    .b_column = 3,
                    .a_log = random_array({h}, mx::float32, seed + 2),
                    .dt_bias = random_array({h}, mx::float32, seed + 3)}};
}

Inputs rows_of(const Inputs& in, int begin, int end) {
  Inputs part = in;
  part.qkv = testing::rows_of(in.qkv, begin, end);
  part.gates.projected = testing::rows_of(in.gates.projected, begin, end);
  return part;
}

mx::Shape pool_shape(const Shape& s) { return {kSlots, s.v_heads, s.v_dim, s.k_dim}; }

// A slot's matrices row by row, from the order that the context keeps them in. A GPU's is that
// already; the reference has the CPU's everywhere.
mx::array matrices_in(const Context& context, const mx::array& slot) {
  return on_gpu() && !context.use_reference ? slot : matrices_of_slot(slot);
}
// A pool in the CPU's order, in that of the context.
mx::array pool_for(const Context& context, const mx::array& pool) {
  std::vector<mx::array> slots;
  for (int i = 0; i < pool.shape(0); ++i) {
    const mx::array slot = mx::reshape(testing::rows_of(pool, i, i + 1),
                                       {pool.shape(1), pool.shape(2), pool.shape(3)});
    const mx::array own = on_gpu() && !context.use_reference ? matrices_of_slot(slot) : slot;
    slots.push_back(mx::expand_dims(own, 0));
  }
  mx::array result = mx::contiguous(mx::concatenate(slots, 0));
  mx::eval(result);
  return result;
}

DeltaRuleResult run(const Context& context, const Inputs& in, const mx::array& pool,
                    const BatchLayoutPtr& layout) {
  auto result = gated_delta_rule(context, in.qkv, in.gates, pool, layout);
  mx::eval(result.y, result.state);
  return result;
}

// Outputs are of the size of v. Sums over Dk in another order, over some tens of tokens.
Bound bound(mx::Dtype dtype) {
  return {.abs = 1e-5f, .rel = 1e-5f + (dtype == mx::float32 ? 0 : 2 * unit_roundoff(dtype))};
}

TEST(GatedDeltaRule, MatchesItsReference) {
  // One token that goes on, a sequence that begins, none, a chunk that goes on.
  const auto layout = layout_of_chunks({{1, 9, 3}, {35, 0, 1}, {0, 4, 0}, {3, 30, 2}});
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const Shape& s : kShapes) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " Dk " + std::to_string(s.k_dim) + " Dv " +
                     std::to_string(s.v_dim));
        Context context = make_context(2);
        const Inputs in = inputs_of(s, 39, dtype);
        const mx::array pool = random_array(pool_shape(s), mx::float32, 9, 0.3f);
        context.use_reference = true;
        const auto expected = run(context, in, pool, layout);
        context.use_reference = false;
        const mx::array own_pool = pool_for(context, pool);
        const auto actual = run(context, in, own_pool, layout);
        EXPECT_TRUE(near(actual.y, expected.y, bound(dtype)));
        EXPECT_TRUE(
            near(actual.state, pool_for(context, expected.state), {.abs = 1e-5f, .rel = 1e-4f}));
        EXPECT_EQ(actual.state.data<float>(), own_pool.data<float>()) << "not in place";
        EXPECT_TRUE(kernel_ran(context, "gated_delta_rule", 1));
        EXPECT_EQ(context.kernels->count("gated_delta_rule", "reference"), 1);
      }
    }
  }
}

// x [.., H * width] with the value heads in the other order: those of all key heads in turn.
mx::array in_turns(const mx::array& x, const Shape& s, int axis, int first, int width) {
  std::vector<int32_t> order(static_cast<size_t>(x.shape(axis)));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  const int group = s.v_heads / s.k_heads;
  for (int head = 0; head < s.v_heads; ++head)
    for (int i = 0; i < width; ++i)
      order[static_cast<size_t>(first + head * width + i)] =
          first + (head % s.k_heads * group + head / s.k_heads) * width + i;
  mx::array result =
      mx::contiguous(mx::take(x, mx::array(order.data(), {x.shape(axis)}, mx::int32), axis));
  mx::eval(result);
  return result;
}

// The value heads of all inputs in the other order.
Inputs in_turns(const Inputs& in, const Shape& s) {
  Inputs turned = in;
  turned.gates.heads_take_turns = true;
  turned.qkv = in_turns(in.qkv, s, 1, 2 * s.k_heads * s.k_dim, s.v_dim);
  for (const auto column : {in.gates.a_column, in.gates.b_column})
    turned.gates.projected = in_turns(turned.gates.projected, s, 1, static_cast<int>(column), 1);
  turned.gates.a_log = in_turns(in.gates.a_log, s, 0, 0, 1);
  turned.gates.dt_bias = in_turns(in.gates.dt_bias, s, 0, 0, 1);
  return turned;
}

void expect_same_heads(const Shape& s, bool use_reference) {
  SCOPED_TRACE("Dk " + std::to_string(s.k_dim) + " Dv " + std::to_string(s.v_dim));
  const auto layout = layout_of_chunks({{1, 9, 3}, {35, 0, 1}, {3, 30, 2}});
  Context context = make_context(2);
  context.use_reference = use_reference;
  const Inputs in = inputs_of(s, 39, mx::float32);
  const mx::array pool = random_array(pool_shape(s), mx::float32, 9, 0.3f);
  const auto expected = run(context, in, pool_for(context, pool), layout);
  const auto actual =
      run(context, in_turns(in, s), pool_for(context, in_turns(pool, s, 1, 0, 1)), layout);
  EXPECT_TRUE(same_bits(actual.y, in_turns(expected.y, s, 1, 0, 1)));
  EXPECT_TRUE(same_bits(actual.state, in_turns(expected.state, s, 1, 0, 1)));
  if (!use_reference) {
    EXPECT_TRUE(kernel_ran(context, "gated_delta_rule", 2));
  }
}

// They are the same heads in another order, bit for bit.
TEST(GatedDeltaRule, HeadsThatTakeTurns) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    SCOPED_TRACE(isa);
    for (const Shape& s : kShapes) expect_same_heads(s, /*use_reference=*/false);
  }
  for (const Shape& s : kShapes) expect_same_heads(s, /*use_reference=*/true);
}

Inputs golden_inputs(const GoldenFile& golden, const std::string& name) {
  const auto flat = [&](const char* part) {
    const mx::array x = golden.array(name, part);
    return mx::reshape(x, {x.shape(0), static_cast<int>(x.size() / x.shape(0))});
  };
  Inputs in{.qkv = mx::contiguous(mx::concatenate({flat("q"), flat("k"), flat("v")}, 1)),
            .gates = {.projected = mx::contiguous(mx::concatenate({flat("a"), flat("b")}, 1)),
                      .a_column = 0,
                      .b_column = golden.array(name, "v").shape(1),
                      .a_log = golden.array(name, "a_log"),
                      .dt_bias = golden.array(name, "dt_bias")}};
  mx::eval(in.qkv, in.gates.projected);
  return in;
}

// One sequence of `tokens`, in two calls if `cut` is between; kernel or reference.
void expect_golden(const GoldenFile& golden, const std::string& name, const Context& context,
                   int tokens, int cut) {
  SCOPED_TRACE(name + " " + std::to_string(tokens) + " tokens cut at " + std::to_string(cut));
  const Inputs in = golden_inputs(golden, name);
  const mx::array expected = golden.array(name, "state_" + std::to_string(tokens));
  mx::Shape shape = expected.shape();
  shape.insert(shape.begin(), 2);
  mx::array pool = poisoned_pool(shape, mx::float32);
  std::vector<mx::array> outputs;
  for (const auto& [begin, end] : {std::pair(0, cut), {cut, tokens}}) {
    if (begin == end) continue;
    const auto step =
        run(context, rows_of(in, begin, end), pool, layout_of_chunks({{end - begin, begin, 1}}));
    outputs.push_back(step.y);
    pool = step.state;
  }
  EXPECT_TRUE(near(mx::concatenate(outputs, 0),
                   testing::rows_of(golden.array(name, "out"), 0, tokens), bound(mx::float32)));
  const mx::array slot = mx::reshape(testing::rows_of(pool, 1, 2), expected.shape());
  EXPECT_TRUE(near(matrices_in(context, slot), expected, {.abs = 1e-5f, .rel = 1e-4f}));
}

// Made from transformers' recurrent rule, float32 (tools/parity).
TEST(GatedDeltaRule, MatchesGoldenData) {
  const GoldenFile golden("tests/parity/ops/gated_delta_rule.safetensors");
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    SCOPED_TRACE(isa);
    for (const auto& name : golden.cases()) {
      std::istringstream lengths(golden.text(name, "lengths"));
      for (int tokens; lengths >> tokens;)
        for (const int cut : {0, 1, tokens / 2, std::max(0, tokens - 1)})
          if (cut < tokens) expect_golden(golden, name, make_context(2), tokens, cut);
    }
  }
  Context reference = make_context(1);
  reference.use_reference = true;
  expect_golden(golden, "lengths", reference, 65, 20);
}

// The bits contract: decode-made and prefill-made outputs and states are the same bits, however the
// prompt is cut, beside whatever neighbours, on any number of threads.
TEST(GatedDeltaRule, ChunksAndNeighboursDoNotMatter) {
  constexpr int kTokens = 130;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const Shape& s : {Shape{1, 2, 64, 128}, Shape{2, 4, 16, 24}, Shape{1, 1, 256, 100}}) {
      const Inputs in = inputs_of(s, kTokens, mx::bfloat16);
      const auto whole = run(make_context(1), in, poisoned_pool(pool_shape(s), mx::float32),
                             layout_of_chunks({{kTokens, 0, 2}}));
      for (const std::vector<int>& cuts : {std::vector{1}, {16}, {7, 1, 33}, {64}, {129}}) {
        for (const int threads : {1, 3}) {
          mx::array pool = poisoned_pool(pool_shape(s), mx::float32);
          std::vector<mx::array> outputs;
          for (int t = 0, i = 0; t < kTokens; ++i) {
            const int n = std::min(cuts[i % cuts.size()], kTokens - t);
            // Rows 0 to 2 again as a neighbour in front.
            Inputs both = rows_of(in, t, t + n);
            const Inputs neighbour = rows_of(in, 0, 3);
            both.qkv = mx::contiguous(mx::concatenate({neighbour.qkv, both.qkv}, 0));
            both.gates.projected = mx::contiguous(
                mx::concatenate({neighbour.gates.projected, both.gates.projected}, 0));
            const auto step =
                run(make_context(threads), both, pool, layout_of_chunks({{3, 0, 0}, {n, t, 2}}));
            outputs.push_back(testing::rows_of(step.y, 3, 3 + n));
            pool = step.state;
            t += n;
          }
          EXPECT_TRUE(same_bits(mx::concatenate(outputs, 0), whole.y)) << isa << " " << cuts[0];
          EXPECT_TRUE(same_bits(testing::rows_of(pool, 2, 3), testing::rows_of(whole.state, 2, 3)));
        }
      }
    }
  }
}

// Every row's arithmetic is its own, whatever its place in a block: the instruction sets with a
// fused multiply-add agree but for the exponentials in the gates, and those are the same code.
TEST(GatedDeltaRule, VectorLengthsAgreeBitForBit) {
  if (!has_cpu_isa("avx2") || !has_cpu_isa("avx512")) GTEST_SKIP() << "needs AVX2 and AVX-512";
  const Shape s{1, 3, 12, 71};
  const Inputs in = inputs_of(s, 33, mx::bfloat16);
  const auto compute = [&](const char* isa) {
    const ForcedIsa forced(isa);
    return run(make_context(2), in, poisoned_pool(pool_shape(s), mx::float32),
               layout_of_chunks({{33, 0, 0}}));
  };
  const auto a = compute("avx2"), b = compute("avx512");
  EXPECT_TRUE(same_bits(a.y, b.y));
  EXPECT_TRUE(same_bits(testing::rows_of(a.state, 0, 1), testing::rows_of(b.state, 0, 1)));
}

// What a 16-bit state would cost: values beyond 65504 are lost, and rounding after every token
// drifts where float32 does not.
TEST(GatedDeltaRule, StateNeedsFloat32) {
  const Shape s{1, 1, 16, 16};
  constexpr int kTokens = 400;
  for (const float size : {1.0f, 1e5f}) {
    Inputs in = inputs_of(s, kTokens, mx::float32);
    const mx::array keys = mx::slice(in.qkv, {0, 0}, {kTokens, 32});
    const mx::array values = mx::slice(in.qkv, {0, 32}, {kTokens, 48}) * mx::array(size);
    in.qkv = mx::contiguous(mx::concatenate({keys, values}, 1));
    in.gates.dt_bias = mx::full({1}, -6.0f);  // hardly any decay
    Context context = make_context(1);
    const auto whole = run(context, in, poisoned_pool(pool_shape(s), mx::float32),
                           layout_of_chunks({{kTokens, 0, 0}}));
    mx::array pool = mx::zeros(pool_shape(s));
    std::vector<mx::array> outputs;
    for (int t = 0; t < kTokens; ++t) {
      const auto step = run(context, rows_of(in, t, t + 1), pool, layout_of_chunks({{1, t, 0}}));
      outputs.push_back(step.y);
      pool = mx::astype(mx::astype(step.state, mx::float16), mx::float32);
      mx::eval(pool);
    }
    const mx::array halves = mx::concatenate(outputs, 0);
    EXPECT_FALSE(near(halves, whole.y, {.abs = 1e-4f * size, .rel = 1e-4f}));
    double worst = 0;
    for (const float y : to_floats(whole.y)) worst = std::max(worst, std::abs(double{y}));
    EXPECT_TRUE(std::isfinite(worst));
    bool finite = true;
    for (const float y : to_floats(halves)) finite = finite && std::isfinite(y);
    EXPECT_EQ(finite, size == 1.0f);
  }
}

// A pool of more than 2^31 floats, of which two slots are ever touched.
TEST(GatedDeltaRule, SlotsBeyondTwoToThe31Elements) {
  const Shape s{1, 4, 128, 128};
  const int slots = (1 << 15) + 3, last = slots - 1;  // 65,536 floats each
  RecurrentState state = make_recurrent_state(
      slots, {.conv_dim = 8, .conv_kernel = 4, .v_heads = 4, .v_dim = 128, .k_dim = 128},
      mx::float32);
  const GatedDeltaRuleParams params{.v_heads = 4, .k_dim = 128, .v_dim = 128};
  EXPECT_EQ(delta_state_offset(params, last, 3, 64), ((int64_t{last} * 4 + 3) * 128 + 64) * 128);
  const Inputs in = inputs_of(s, 6, mx::float32);
  const auto expected =
      run(make_context(1), in, mx::zeros(pool_shape(s)), layout_of_chunks({{6, 0, 1}}));
  const Context context = make_context(2);
  const auto first =
      run(context, rows_of(in, 0, 4), state.recurrent, layout_of_chunks({{4, 0, last}}));
  const auto second =
      run(context, rows_of(in, 4, 6), first.state, layout_of_chunks({{2, 4, last}}));
  EXPECT_TRUE(same_bits(second.y, testing::rows_of(expected.y, 4, 6)));
  const int64_t slot_floats = 4 * 128 * 128;
  EXPECT_GT(last * slot_floats, int64_t{1} << 31);
  EXPECT_EQ(std::memcmp(second.state.data<float>() + last * slot_floats,
                        expected.state.data<float>() + slot_floats, slot_floats * sizeof(float)),
            0);
}

TEST(GatedDeltaRule, SlotOrderIsAPermutation) {
  const mx::array matrices = random_array({3, 150, 12}, mx::float32, 1);
  EXPECT_TRUE(same_bits(matrices_of_slot(slot_of_matrices(matrices)), matrices));
}

TEST(GatedDeltaRule, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const Shape s{2, 4, 16, 24};
  const auto layout = layout_of_chunks({{3, 0, 1}});
  const mx::array pool = mx::zeros(pool_shape(s));
  const Inputs good = inputs_of(s, 3, mx::float32);
  const auto refuses = [&](const Inputs& in, const mx::array& p, const BatchLayoutPtr& l) {
    EXPECT_THROW(gated_delta_rule(context, in.qkv, in.gates, p, l), std::invalid_argument);
  };
  EXPECT_NO_THROW(run(context, good, pool, layout));
  refuses(good, mx::zeros({kSlots, 4, 24, 18}), layout);   // Dk no multiple of 4
  refuses(good, mx::zeros({kSlots, 4, 20, 16}), layout);   // not qkv's width
  refuses(good, mx::zeros({kSlots, 4, 24, 260}), layout);  // Dk too large
  refuses(good, mx::zeros(pool_shape(s), mx::float16), layout);
  refuses(good, pool, layout_of_chunks({{3, 0, kSlots}}));
  refuses(good, pool, layout_of_chunks({{3, 0, -2}}));
  refuses(good, pool, layout_of_chunks({{2, 0, 1}, {1, 0, 1}}));
  refuses(good, pool, layout_of_chunks({{4, 0, 1}}));
  Inputs bad = good;
  bad.gates.a_column = 14;
  refuses(bad, pool, layout);
  bad = good;
  bad.gates.dt_bias = mx::zeros({5});
  refuses(bad, pool, layout);
  bad = good;
  bad.gates.projected = mx::zeros({3, 20}, mx::bfloat16);
  refuses(bad, pool, layout);
}

}  // namespace
}  // namespace quire::ops
