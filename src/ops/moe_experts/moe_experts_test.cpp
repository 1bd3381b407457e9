#include "ops/moe_experts/moe_experts.h"

#include "ops/gated_activation/gated_activation.h"
#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/int8/int8_test_util.h"
#include "ops/linear/linear_test_util.h"
#include "ops/linear/pack/block_float_matrix.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr int kHidden = 48, kIntermediate = 40;

LinearWeight random_linear(const Context& context, int n, int k, mx::Dtype dtype, uint32_t seed,
                           bool interleave) {
  const mx::array rows = random_array({n, k}, dtype, seed, 0.2f);
  const RowMatrix source = {.data = rows.data<void>(), .n = n, .k = k, .dtype = dtype};
  return {.weight = pack_matrix(context, {&source, 1}, dtype, interleave)};
}

// On the context's device, as a loader puts it there.
mx::array random_bias(const Context& context, int n, uint32_t seed) {
  const mx::array values = random_array({n}, mx::float32, seed);
  return context.device->make_array(values.data<void>(), {n}, mx::float32);
}

std::vector<Expert> separate_experts(const Context& context, int count, mx::Dtype dtype,
                                     bool biases = false, bool interleave = true) {
  std::vector<Expert> experts;
  for (int e = 0; e < count; ++e) {
    const auto seed = static_cast<uint32_t>(10 + 2 * e);
    experts.push_back(
        {.gate_up = random_linear(context, 2 * kIntermediate, kHidden, dtype, seed, interleave),
         .down = random_linear(context, kHidden, kIntermediate, dtype, seed + 1, false)});
    if (!biases) continue;
    experts.back().gate_up.bias = random_bias(context, 2 * kIntermediate, seed + 100);
    experts.back().down.bias = random_bias(context, kHidden, seed + 101);
  }
  return experts;
}

Experts random_experts(const Context& context, int count, mx::Dtype dtype, bool biases = false) {
  return stack_experts(context, separate_experts(context, count, dtype, biases));
}

struct Case {
  mx::array x;
  MoeRouting routing;
  MoeExpertsOptions options;
};

Case random_case(const Context& context, int rows, int experts, int top_k, mx::Dtype dtype) {
  const mx::array logits = random_array({rows, experts}, mx::float32, 3, 2.0f);
  return {.x = random_array({rows, kHidden}, dtype, 4),
          .routing = moe_route(context, logits, {.top_k = top_k, .normalise = true}),
          .options = {.shared = MoeExpertsOptions::Shared{random_array({rows, kHidden}, dtype, 5),
                                                          random_array({rows, 1}, mx::float32, 6)},
                      .residual = random_array({rows, kHidden}, dtype, 7)}};
}

// Ways for experts to be: with Case's shared expert and residual, or without.
struct Variant {
  std::string name;
  MoeExpertsOptions options = {};
  bool extras = false, logit = false, biases = false;

  MoeExpertsOptions of(const Case& c) const {
    MoeExpertsOptions result = options;
    if (!extras) return result;
    result.residual = c.options.residual;
    result.shared = c.options.shared;
    if (!logit) result.shared->logit.reset();
    return result;
  }
};

std::vector<Variant> variants() {
  return {{.name = "plain"},
          {.name = "shared with a logit", .extras = true, .logit = true},
          {.name = "biases", .biases = true},
          {.name = "shared", .extras = true},
          {.name = "weighed input", .options = {.weigh_input = true}, .extras = true},
          {.name = "gelu", .options = {.gate = {.kind = Gate::Kind::kGeluTanh}}},
          {.name = "clamped",
           .options = {.gate = {.kind = Gate::Kind::kClampedSwiglu, .limit = 0.5f}},
           .biases = true}};
}

// Float32: the sums of two products of 48 and 40 terms and of the experts; 16 bits: the gated
// values and the result are rounded once each, and the gated values pass through weights of size
// 0.2. On Metal there are five roundings instead of two: both products before their biases, too,
// and the second one before it is weighed.
Bound bound(mx::Dtype dtype) {
  const float u = (on_metal() ? 2.5f : 1.0f) * unit_roundoff(dtype);
  return dtype == mx::float32 ? Bound{.abs = 2e-5f, .rel = 2e-5f}
                              : Bound{.abs = 4 * u, .rel = 4 * u};
}

TEST(MoeExperts, MatchesItsReference) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [rows, experts, top_k] :
           {std::tuple(1, 4, 2), {3, 8, 3}, {40, 5, 2}, {70, 16, 4}, {9, 2, 2}}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " rows " + std::to_string(rows));
        const Context context = make_context(2);
        Context reference = make_context(1, make_cpu_device());  // it reads the CPU's layout
        reference.use_reference = true;
        const Case c = random_case(context, rows, experts, top_k, dtype);
        for (const Variant& variant : variants()) {
          SCOPED_TRACE(variant.name);
          const Experts weights = random_experts(context, experts, dtype, variant.biases);
          const Experts same_weights = random_experts(reference, experts, dtype, variant.biases);
          const mx::array y = moe_experts(context, c.x, c.routing, weights, variant.of(c));
          mx::eval(y);
          EXPECT_TRUE(near(y, moe_experts(reference, c.x, c.routing, same_weights, variant.of(c)),
                           bound(dtype)));
        }
        EXPECT_TRUE(kernel_ran(context, "moe_experts", variants().size(), dense_kernel(dtype)));
      }
    }
  }
}

constexpr const char* kByRows = "MLX chooses its products' kernels by the number of rows";

// What the ops that moe_experts() is made of give for one row: a linear without a gate and
// gated_activation() for each expert.
mx::array row_by_parts(const Context& context, const Case& c, int row,
                       const std::vector<Expert>& experts, const MoeExpertsOptions& options,
                       bool fused_multiply_add) {
  const auto multiply_add = [&](float a, float b, float sum) {
    return fused_multiply_add ? std::fma(a, b, sum) : a * b + sum;
  };
  const int k = c.routing.experts.shape(1);
  const auto chosen = to_floats(matrix_rows(c.routing.experts, row, 1));
  const auto weights = to_floats(matrix_rows(c.routing.weights, row, 1));
  const mx::array x = matrix_rows(c.x, row, 1);
  const int hidden = c.x.shape(1);
  std::vector<float> sum(static_cast<size_t>(hidden));
  for (size_t e = 0; e < experts.size(); ++e) {
    for (int i = 0; i < k; ++i) {
      if (chosen[i] != static_cast<float>(e)) continue;
      const mx::array weighed =
          mx::astype(mx::astype(x, mx::float32) * mx::array(weights[i]), x.dtype());
      const Expert& expert = experts[e];
      const mx::array gate_up = linear(context, options.weigh_input ? weighed : x, expert.gate_up);
      const auto y = to_floats(linear(context, gated_activation(context, gate_up, options.gate),
                                      expert.down, {.out_dtype = mx::float32}));
      for (int j = 0; j < hidden; ++j)
        sum[j] = multiply_add(options.weigh_input ? 1.0f : weights[i], y[j], sum[j]);
    }
  }
  if (options.shared) {
    const auto shared = to_floats(matrix_rows(options.shared->y, row, 1));
    for (int j = 0; j < hidden; ++j) sum[j] += shared[j];
  }
  if (options.residual) {
    const auto residual = to_floats(matrix_rows(*options.residual, row, 1));
    for (int j = 0; j < hidden; ++j) sum[j] += residual[j];
  }
  return mx::astype(mx::array(sum.data(), {1, hidden}, mx::float32), x.dtype());
}

TEST(MoeExperts, IsItsPartsBitForBit) {
  if (on_metal()) GTEST_SKIP() << kByRows;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      const Context context = make_context(2);
      const Case c = random_case(context, 19, 5, 2, dtype);
      for (const Variant& variant : variants()) {
        if (variant.logit) continue;  // the sigmoid is no op of its own
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " " + variant.name);
        const Experts weights = random_experts(context, 5, dtype, variant.biases);
        const std::vector<Expert> separate =
            separate_experts(context, 5, dtype, variant.biases, /*interleave=*/false);
        const MoeExpertsOptions options = variant.of(c);
        const mx::array y = moe_experts(context, c.x, c.routing, weights, options);
        for (const int t : {0, 7, 18})
          EXPECT_TRUE(same_bits(matrix_rows(y, t, 1),
                                row_by_parts(context, c, t, separate, options, isa != "portable")));
      }
    }
  }
}

TEST(MoeExperts, ARowDependsOnItselfAlone) {
  if (on_metal()) GTEST_SKIP() << kByRows;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const Variant& variant : variants()) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + " " + variant.name);
        const Context context = make_context(2), single = make_context(1);
        const Experts weights = random_experts(context, 6, dtype, variant.biases);
        const Case c = random_case(context, 67, 6, 2, dtype);
        const MoeExpertsOptions whole = variant.of(c);
        const mx::array all = moe_experts(context, c.x, c.routing, weights, whole);
        EXPECT_TRUE(same_bits(all, moe_experts(single, c.x, c.routing, weights, whole)));
        for (const int t : {0, 5, 66}) {
          const auto row = [t](const mx::array& a) { return matrix_rows(a, t, 1); };
          const MoeRouting routing = {row(c.routing.experts), row(c.routing.weights)};
          MoeExpertsOptions options = whole;
          if (options.residual) options.residual = row(*options.residual);
          if (options.shared) options.shared->y = row(options.shared->y);
          if (options.shared && options.shared->logit)
            options.shared->logit = row(*options.shared->logit);
          EXPECT_TRUE(
              same_bits(moe_experts(context, row(c.x), routing, weights, options), row(all)));
        }
      }
    }
  }
}

// Rows of mxfp4 and what MLX dequantises them to, each packed as an expert's weight.
struct TwoForms {
  LinearWeight codes, dense;
};
TwoForms random_mxfp4(const Context& context, int n, int k, mx::Dtype dtype, uint32_t seed,
                      bool interleave) {
  std::mt19937 generator(seed);
  std::vector<uint32_t> codes(static_cast<size_t>(n) * k / 8);
  for (uint32_t& word : codes) word = static_cast<uint32_t>(generator());
  std::vector<uint8_t> scales(static_cast<size_t>(n) * k / 32);
  for (uint8_t& scale : scales) scale = static_cast<uint8_t>(121 + generator() % 5);
  const mx::array values(codes.data(), {n, k / 8}, mx::uint32);
  const mx::array bytes(scales.data(), {n, k / 32}, mx::uint8);
  mx::array dense = mx::astype(
      mx::dequantize(values, bytes, std::nullopt, 32, 4, "mxfp4", std::nullopt, mx::float32),
      dtype);
  mx::eval(dense);
  const BlockFloatRows rows = {.values = codes.data(),
                               .scales = scales.data(),
                               .n = n,
                               .k = k,
                               .format = BlockFloat::kMxfp4};
  const RowMatrix source = {.data = dense.data<void>(), .n = n, .k = k, .dtype = dtype};
  return {.codes = {.weight = pack_block_float_matrix(context, {&rows, 1}, dtype, interleave)},
          .dense = {.weight = pack_matrix(context, {&source, 1}, dtype, interleave)}};
}

// The products of several experts are one pool of work, with one row each or hundreds: the bits are
// those of dense experts, and of tokens one by one.
TEST(MoeExperts, QuantisedExpertsHaveTheBitsOfDenseOnes) {
  constexpr int kWidth = 64, kInner = 96, kCount = 8, kTopK = 3;
  if (on_cuda()) GTEST_SKIP() << "dense there";
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      const Context context = make_context(2);
      std::vector<Expert> codes, dense;
      for (uint32_t e = 0; e < kCount; ++e) {
        const TwoForms gate_up = random_mxfp4(context, 2 * kInner, kWidth, dtype, 20 + e, true);
        const TwoForms down = random_mxfp4(context, kWidth, kInner, dtype, 40 + e, false);
        codes.push_back({.gate_up = gate_up.codes, .down = down.codes});
        dense.push_back({.gate_up = gate_up.dense, .down = down.dense});
      }
      const Experts coded = stack_experts(context, std::move(codes));
      const Experts plain = stack_experts(context, std::move(dense));
      for (const int rows : {1, 2, 9, 150, 400}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + std::to_string(rows) + " rows");
        const mx::array x = random_array({rows, kWidth}, dtype, 4);
        const MoeRouting routing =
            moe_route(context, random_array({rows, kCount}, mx::float32, 3, 2.0f),
                      {.top_k = kTopK, .normalise = true});
        const mx::array y = moe_experts(context, x, routing, coded);
        const auto alike = [&](const mx::array& a, const mx::array& b) {
          return on_metal() ? near(a, b, units_of_largest(dtype == mx::float32 ? 16 : 8, b))
                            : same_bits(a, b);
        };
        ASSERT_TRUE(alike(y, moe_experts(context, x, routing, plain)));
        const int last = rows - 1;
        ASSERT_TRUE(
            alike(matrix_rows(y, last, 1), moe_experts(context, matrix_rows(x, last, 1),
                                                       {matrix_rows(routing.experts, last, 1),
                                                        matrix_rows(routing.weights, last, 1)},
                                                       coded)));
      }
      EXPECT_TRUE(kernel_ran(context, "moe_experts", 15, dense_kernel(dtype)));
    }
  }
}

// With activations of 8 bits, one row each or dozens, or some experts with few and some with many:
// as linear() with each expert alone.
TEST(MoeExperts, RoundActivationsAsTheirPartsDo) {
  constexpr int kWidth = 128, kInner = 96, kCount = 8;
  if (on_gpu()) GTEST_SKIP() << "the CPU's";
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const int bits : {3, 4, 8}) {
      const Context context = make_context(3);
      const auto random = [&](int n, int k, uint32_t seed, bool interleave) -> LinearWeight {
        const AffineSource source = affine_source(
            n, k, {bits, 32, mx::bfloat16, ZeroPoints::kNone, 0, true}, mx::bfloat16, seed);
        return {.weight = pack_affine_matrix(context, {&source.rows, 1}, mx::bfloat16, interleave)};
      };
      std::vector<Expert> together, separate;
      for (uint32_t e = 0; e < kCount; ++e) {
        const LinearWeight down = random(kWidth, kInner, 40 + e, false);
        together.push_back({.gate_up = random(2 * kInner, kWidth, 20 + e, true), .down = down});
        separate.push_back({.gate_up = random(2 * kInner, kWidth, 20 + e, false), .down = down});
      }
      const Experts experts = stack_experts(context, std::move(together));
      for (const int rows : {1, 2, 9, 70, 150}) {
        SCOPED_TRACE(isa + ", " + std::to_string(bits) + " bits, " + std::to_string(rows) +
                     " rows");
        const mx::array logits = random_array({rows, kCount}, mx::float32, 3, 2.0f);
        const Case c = {.x = random_array({rows, kWidth}, mx::bfloat16, 4),
                        .routing = moe_route(context, logits, {.top_k = 3, .normalise = true}),
                        .options = {}};
        const mx::array y = moe_experts(context, c.x, c.routing, experts);
        for (const int t : {0, rows / 2, rows - 1})
          ASSERT_TRUE(same_bits(matrix_rows(y, t, 1),
                                row_by_parts(context, c, t, separate, {}, isa != "portable")));
      }
      EXPECT_TRUE(kernel_ran(context, "moe_experts", 5, int8_kernel()));
    }
  }
}

TEST(MoeExperts, RefusesWhatDoesNotFit) {
  const Context context = make_context(1);
  const Experts weights = random_experts(context, 4, mx::float32);
  const Case c = random_case(context, 3, 4, 2, mx::float32);
  EXPECT_THROW(moe_experts(context, mx::zeros({3, kHidden + 1}), c.routing, weights),
               std::invalid_argument);
  EXPECT_THROW(moe_experts(context, c.x, c.routing, nullptr), std::invalid_argument);
  EXPECT_THROW(stack_experts(context, {}), std::invalid_argument);
  const auto refuses = [&](const std::vector<Expert>& other) {
    std::vector<Expert> mixed = separate_experts(context, 4, mx::float32);
    mixed.back() = other.front();
    EXPECT_THROW(stack_experts(context, mixed), std::invalid_argument);
  };
  refuses(separate_experts(context, 1, mx::bfloat16));
  refuses(separate_experts(context, 1, mx::float32, /*biases=*/true));
  const TwoForms codes = random_mxfp4(context, 2 * kIntermediate, 64, mx::float32, 1, true);
  refuses({{.gate_up = codes.codes, .down = codes.dense}});
}

}  // namespace
}  // namespace quire::ops
