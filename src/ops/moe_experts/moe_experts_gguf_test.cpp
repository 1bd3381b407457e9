#include "ops/linear/gguf/gguf_test_util.h"
#include "ops/linear/linear_test_util.h"
#include "ops/moe_experts/moe_experts.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr int kWidth = 256;  // of hidden states and of an expert

// Experts cut from three stacked tensors, as a GGUF file has them, and the same ones dense.
struct Stacks {
  GgufFormat gate, up, down;
};

// Rows of expert e of a stack of `experts` matrices.
GgufRows slice(const GgufSource& stack, int experts, int e) {
  GgufRows rows = stack.rows;
  rows.n /= experts;
  rows.data = stack.bytes.data() + e * rows.n * gguf_row_bytes(rows.format, rows.k);
  return rows;
}
mx::array dense_slice(const GgufSource& stack, int experts, int e, mx::Dtype dtype) {
  return matrix_rows(stack.dense(dtype), e * static_cast<int>(stack.rows.n) / experts,
                     static_cast<int>(stack.rows.n) / experts);
}

LinearWeight pack_dense_rows(const Context& context, const mx::array& rows, bool interleave) {
  const RowMatrix source = {
      .data = rows.data<void>(), .n = rows.shape(0), .k = rows.shape(1), .dtype = rows.dtype()};
  return {.weight = pack_matrix(context, {&source, 1}, rows.dtype(), interleave)};
}

TEST(MoeExpertsGguf, EqualsTheDenseExpertsOfTheirValues) {
  if (on_cuda()) GTEST_SKIP() << "dense there";
  constexpr int kExperts = 4;
  const Stacks mixes[] = {{GgufFormat::kQ4_K, GgufFormat::kQ4_K, GgufFormat::kQ6_K},
                          {GgufFormat::kQ8_0, GgufFormat::kQ8_0, GgufFormat::kQ5_K},
                          {GgufFormat::kIq4Xs, GgufFormat::kQ3_K, GgufFormat::kMxfp4},
                          {GgufFormat::kNvfp4, GgufFormat::kNvfp4, GgufFormat::kNvfp4}};
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const Stacks& mix : mixes) {
      const Context context = make_context(2), dense_context = make_context(2);
      const mx::Dtype dtype = mx::bfloat16;
      const auto gate = gguf_source(kExperts * kWidth, kWidth, mix.gate, 1),
                 up = gguf_source(kExperts * kWidth, kWidth, mix.up, 2),
                 down = gguf_source(kExperts * kWidth, kWidth, mix.down, 3);
      std::vector<Expert> packed, dense;
      for (int e = 0; e < kExperts; ++e) {
        const GgufRows gate_up[] = {slice(*gate, kExperts, e), slice(*up, kExperts, e)};
        const GgufRows of_down = slice(*down, kExperts, e);
        packed.push_back({.gate_up = {.weight = pack_gguf_matrix(context, gate_up, dtype, true)},
                          .down = {.weight = pack_gguf_matrix(context, {&of_down, 1}, dtype)}});
        const mx::array both = mx::contiguous(mx::concatenate(
            {dense_slice(*gate, kExperts, e, dtype), dense_slice(*up, kExperts, e, dtype)}, 0));
        mx::eval(both);
        dense.push_back(
            {.gate_up = pack_dense_rows(context, both, true),
             .down = pack_dense_rows(context, dense_slice(*down, kExperts, e, dtype), false)});
      }
      const Experts experts = stack_experts(context, std::move(packed)),
                    dense_experts = stack_experts(dense_context, std::move(dense));
      for (const int rows : {1, 7, 40, 120}) {  // 120: some with over 64, some with fewer
        SCOPED_TRACE(isa + ", " + gguf_block(mix.gate).name + ", " + std::to_string(rows));
        const mx::array logits = random_array({rows, kExperts}, mx::float32, 4, 2.0f);
        const MoeRouting routing = moe_route(context, logits, {.top_k = 2, .normalise = true});
        const mx::array x = random_array({rows, kWidth}, dtype, 5);
        const mx::array y = moe_experts(context, x, routing, experts),
                        expected = moe_experts(dense_context, x, routing, dense_experts);
        // On Metal most formats are dense values, too.
        ASSERT_TRUE(on_metal() ? near(y, expected, units_of_largest(8, expected))
                               : same_bits(y, expected));
      }
    }
  }
}

}  // namespace
}  // namespace quire::ops
