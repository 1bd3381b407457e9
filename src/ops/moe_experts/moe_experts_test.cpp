#include "ops/moe_experts/moe_experts.h"

#include "ops/linear/linear_test_util.h"

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

Experts random_experts(const Context& context, int count, mx::Dtype dtype) {
  std::vector<Expert> experts;
  for (int e = 0; e < count; ++e) {
    const auto seed = static_cast<uint32_t>(10 + 2 * e);
    experts.push_back(
        {.gate_up = random_linear(context, 2 * kIntermediate, kHidden, dtype, seed, true),
         .down = random_linear(context, kHidden, kIntermediate, dtype, seed + 1, false)});
  }
  return std::make_shared<const std::vector<Expert>>(std::move(experts));
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

// Float32: the sums of two products of 48 and 40 terms and of the experts; 16 bits: the gated
// values and the result are rounded once each, and the gated values pass through weights of size
// 0.2.
Bound bound(mx::Dtype dtype) {
  const float u = unit_roundoff(dtype);
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
        const Experts weights = random_experts(context, experts, dtype);
        const Experts same_weights = random_experts(reference, experts, dtype);
        const Case c = random_case(context, rows, experts, top_k, dtype);
        for (const bool extras : {false, true}) {
          const MoeExpertsOptions options = extras ? c.options : MoeExpertsOptions{};
          const mx::array y = moe_experts(context, c.x, c.routing, weights, options);
          mx::eval(y);
          EXPECT_TRUE(
              near(y, moe_experts(reference, c.x, c.routing, same_weights, options), bound(dtype)));
        }
        EXPECT_TRUE(kernel_ran(context, "moe_experts", 2, dense_kernel(dtype)));
      }
    }
  }
}

TEST(MoeExperts, ARowDependsOnItselfAlone) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      SCOPED_TRACE(isa + " " + dtype_name(dtype));
      const Context context = make_context(2), single = make_context(1);
      const Experts weights = random_experts(context, 6, dtype);
      const Case c = random_case(context, 67, 6, 2, dtype);
      const mx::array all = moe_experts(context, c.x, c.routing, weights, c.options);
      EXPECT_TRUE(same_bits(all, moe_experts(single, c.x, c.routing, weights, c.options)));
      for (const int t : {0, 5, 66}) {
        const auto row = [t](const mx::array& a) { return matrix_rows(a, t, 1); };
        const MoeRouting routing = {row(c.routing.experts), row(c.routing.weights)};
        const MoeExpertsOptions options = {
            .shared =
                MoeExpertsOptions::Shared{row(c.options.shared->y), row(*c.options.shared->logit)},
            .residual = row(*c.options.residual)};
        EXPECT_TRUE(same_bits(moe_experts(context, row(c.x), routing, weights, options), row(all)));
      }
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
  auto mixed = std::make_shared<std::vector<Expert>>(*weights);
  mixed->back() = random_experts(context, 1, mx::bfloat16)->front();
  EXPECT_THROW(moe_experts(context, c.x, c.routing, mixed), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
