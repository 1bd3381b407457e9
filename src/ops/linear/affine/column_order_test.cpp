// Weights whose columns are packed in another order than W's, so that those of a group are
// neighbours (GPTQ's "act order").
#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/embedding/embedding.h"
#include "ops/head_linear/head_linear.h"
#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/int8/int8_test_util.h"
#include "ops/linear/linear_reference.h"
#include "ops/linear/linear_test_util.h"
#include "ops/linear/pack/stack_matrices.h"
#include "ops/moe_experts/moe_experts.h"
#include "ops/rms_norm/rms_norm.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

std::vector<int32_t> shuffled(int k, uint32_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(k));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 generator(seed);
  std::ranges::shuffle(order, generator);
  return order;
}

// Packed columns and where they are in W.
struct Ordered {
  AffineSource packed;  // its dense columns are the packed ones
  std::vector<int32_t> columns;
  AffineRows rows;

  mx::array indices() const {
    return mx::array(columns.data(), {static_cast<int>(columns.size())}, mx::int32);
  }
  mx::array in_order(const mx::array& x) const {  // columns of x as the packed ones are
    mx::array taken = mx::contiguous(mx::take(x, indices(), 1));
    mx::eval(taken);
    return taken;
  }
  mx::array dense() const {  // W
    mx::array out = mx::contiguous(mx::take(packed.dense, mx::argsort(indices()), 1));
    mx::eval(out);
    return out;
  }
};

std::shared_ptr<const Ordered> make_ordered(int n, int k, const AffineFormat& format,
                                            mx::Dtype dtype, uint32_t seed = 7) {
  auto out = std::make_shared<Ordered>(Ordered{.packed = affine_source(n, k, format, dtype, seed),
                                               .columns = shuffled(k, seed),
                                               .rows = {}});
  out->rows = out->packed.rows;
  out->rows.columns = out->columns.data();
  return out;
}

LinearWeight pack(const Context& context, const Ordered& w, mx::Dtype dtype,
                  bool interleave = false) {
  return {.weight = pack_affine_matrix(context, {&w.rows, 1}, dtype, interleave)};
}

constexpr AffineFormat four_bits() { return {4, 32, mx::float16}; }
constexpr AffineFormat eight_bits() { return {8, 64, mx::float16}; }

class ColumnOrder : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "no kernel there: AGpuHasNone";
  }
};

// Sums go over the columns in their packed order, so the bits are those of the dense weight and the
// input in that order; the norm, whose sum goes over x itself, comes first.
TEST_F(ColumnOrder, GivesTheBitsOfTheDenseLinearInThatOrder) {
  const int n = 70, k = 320;
  const mx::array norm = random_array({k}, mx::float32, 3);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const AffineFormat& format : {four_bits(), eight_bits()}) {
        const Context context = make_context(2), other = make_context(2);
        const auto w = make_ordered(n, k, format, dtype);
        const LinearWeight weight = pack(context, *w, dtype);
        const LinearWeight dense = {.weight = pack_dense(other, w->packed.dense)};
        int runs = 0;
        for (const int rows : kRowCounts) {
          SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + format_name(format) + ", " +
                       std::to_string(rows) + " rows");
          const mx::array x = random_array({rows, k}, dtype, 1);
          const LinearOptions sum = {.residual = random_array({rows, n}, dtype, 2)};
          ASSERT_TRUE(same_bits(linear(context, x, weight, sum),
                                linear(other, w->in_order(x), dense, sum)));
          const LinearOptions normed = {.out_dtype = mx::float32,
                                        .norm = LinearOptions::Norm{norm, 1e-6f}};
          ASSERT_TRUE(same_bits(linear(context, x, weight, normed),
                                linear(other, w->in_order(rms_norm(other, x, norm, 1e-6f)), dense,
                                       {.out_dtype = mx::float32})));
          runs += 2;
        }
        EXPECT_TRUE(kernel_ran(context, "linear", runs, product_kernel(dtype)));
      }
  }
}

// The same weight in W's own order: nothing but the order of sums differs.
TEST_F(ColumnOrder, IsWithinItsErrorBoundOfFloat64) {
  const int n = 48, k = 512, rows = 5;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const AffineFormat& format : {four_bits(), eight_bits()}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + format_name(format));
        const Context context = make_context(2);
        const auto w = make_ordered(n, k, format, dtype, 9);
        const mx::array x = random_array({rows, k}, dtype, 1);
        const auto y =
            to_floats(linear(context, x, pack(context, *w, dtype), {.out_dtype = mx::float32}));
        const auto a = to_floats(x), b = to_floats(w->dense());
        const double u = unit_roundoff(mx::float32);
        const int num_sums = 16 + 3 + k / 32;
        for (int t = 0; t < rows; ++t)
          for (int j = 0; j < n; ++j) {
            double exact = 0, magnitude = 0;
            for (int i = 0; i < k; ++i) {
              const double product = static_cast<double>(a[t * k + i]) * b[j * k + i];
              exact += product;
              magnitude += std::abs(product);
            }
            ASSERT_LE(std::abs(y[t * n + j] - exact), 1.01 * u * num_sums * magnitude + 1e-6)
                << t << ", " << j;
          }
      }
  }
}

TEST_F(ColumnOrder, ARowDoesNotDependOnTheBatch) {
  constexpr int kMost = 512, k = 320;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const Context context = make_context(3);
    const LinearWeight w =
        pack(context, *make_ordered(2 * 40, k, four_bits(), mx::bfloat16), mx::bfloat16, true);
    const LinearOptions silu = {
        .norm = LinearOptions::Norm{random_array({k}, mx::float32, 3), 1e-6f}, .gate = Gate{}};
    const mx::array x = random_array({kMost, k}, mx::bfloat16, 1);
    const mx::array whole = linear(context, x, w, silu);
    for (const int m : kRowCounts)
      ASSERT_TRUE(same_bits(linear(context, matrix_rows(x, kMost - m, m), w, silu),
                            matrix_rows(whole, kMost - m, m)))
          << isa << ", " << m << " rows";
  }
}

TEST_F(ColumnOrder, RowsAreThoseOfTheWeight) {
  for (const mx::Dtype dtype : float_dtypes()) {
    const Context context = make_context(2);
    const auto w = make_ordered(37, 256, four_bits(), dtype);
    const PackedMatrix packed = pack(context, *w, dtype).weight;
    EXPECT_TRUE(same_bits(unpack_matrix(packed), w->dense()));
    const auto rows = dequantise_rows(context, packed);
    EXPECT_EQ(std::memcmp(rows.get(), w->dense().data<void>(), w->dense().nbytes()), 0);
    const mx::array ids(std::vector<int32_t>{3, 36, 0}.data(), {3}, mx::int32);
    EXPECT_TRUE(same_bits(embedding(context, ids, packed), mx::take(w->dense(), ids, 0)));
  }
}

// q, k and v in orders of their own.
TEST_F(ColumnOrder, PartsMayHaveOrdersOfTheirOwn) {
  const int k = 256;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const Context context = make_context(2), other = make_context(2);
    const auto a = make_ordered(32, k, four_bits(), mx::bfloat16, 1);
    const auto b = make_ordered(24, k, four_bits(), mx::bfloat16, 2);
    const AffineRows both[] = {a->rows, b->rows};
    EXPECT_FALSE(go_together(both));
    EXPECT_THROW(pack_affine_matrix(context, both, mx::bfloat16), std::invalid_argument);
    const LinearWeight stack = {
        .weight = stack_matrices(context, {pack(context, *a, mx::bfloat16).weight,
                                           pack(context, *b, mx::bfloat16).weight})};
    for (const int rows : {1, 5, 40}) {
      const mx::array x = random_array({rows, k}, mx::bfloat16, 4);
      const auto of_part = [&](const Ordered& w) {
        return linear(other, w.in_order(x), {.weight = pack_dense(other, w.packed.dense)});
      };
      ASSERT_TRUE(same_bits(linear(context, x, stack),
                            mx::contiguous(mx::concatenate({of_part(*a), of_part(*b)}, 1))))
          << isa << ", " << rows << " rows";
    }
    EXPECT_TRUE(kernel_ran(context, "linear", 3, "cpu_parts"));
  }
}

// Each expert has an order of its own.
TEST_F(ColumnOrder, OfExpertsIsTheirOwn) {
  const int hidden = 256, inner = 128, count = 3, rows = 9;
  const mx::Dtype dtype = mx::bfloat16;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const Context context = make_context(2), other = make_context(2);
    std::vector<Expert> ordered, dense;
    for (uint32_t e = 0; e < count; ++e) {
      const auto gate_up = make_ordered(2 * inner, hidden, four_bits(), dtype, 10 + e);
      const auto down = make_ordered(hidden, inner, four_bits(), dtype, 20 + e);
      ordered.push_back(
          {.gate_up = pack(context, *gate_up, dtype, true), .down = pack(context, *down, dtype)});
      dense.push_back({.gate_up = pack_both_orders(other, gate_up->dense()).gated,
                       .down = pack_both_orders(other, down->dense()).plain});
    }
    const std::vector<int32_t> chosen = {0, 1, 2, 0, 1, 2, 2, 1, 0};
    const MoeRouting routing = {.experts = mx::array(chosen.data(), {rows, 1}, mx::int32),
                                .weights = mx::ones({rows, 1}, mx::float32)};
    const mx::array x = random_array({rows, hidden}, dtype, 1);
    const auto y =
        to_floats(moe_experts(context, x, routing, stack_experts(context, std::move(ordered))));
    const auto expected =
        to_floats(moe_experts(other, x, routing, stack_experts(other, std::move(dense))));
    double most = 0;
    for (const float v : expected) most = std::max(most, std::abs(static_cast<double>(v)));
    // Other orders of sums, then two roundings to bfloat16 that may fall the other way.
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], expected[i], 4 * unit_roundoff(dtype) * most) << isa << ", " << i;
  }
}

TEST_F(ColumnOrder, DoesNotGoWithHeads) {
  const Context context = make_context(1);
  const auto w = make_ordered(16, 128, four_bits(), mx::bfloat16);
  const std::vector<PackedMatrix> heads = {pack(context, *w, mx::bfloat16).weight};
  EXPECT_THROW(stack_heads(context, heads), std::invalid_argument);
}

// Activations of 8 bits are rounded by the groups of the packed columns: the bits are those of the
// packed matrix times x in its order.
TEST_F(ColumnOrder, GoesWithActivationsOf8Bits) {
  const int k = 384;
  const mx::array norm = random_array({k}, mx::float32, 3);
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (AffineFormat format : {four_bits(), eight_bits()}) {
      format.int8_activations = true;
      Context context = make_context(2), other = make_context(2);
      const auto w = make_ordered(70, k, format, mx::bfloat16);
      const LinearWeight weight = pack(context, *w, mx::bfloat16);
      const LinearWeight packed = {
          .weight = pack_affine_matrix(other, {&w->packed.rows, 1}, mx::bfloat16)};
      for (const int rows : kRowCounts) {
        SCOPED_TRACE(isa + ", " + format_name(format) + ", " + std::to_string(rows) + " rows");
        const mx::array x = random_array({rows, k}, mx::bfloat16, 1);
        const mx::array y = linear(context, x, weight, {.out_dtype = mx::float32});
        ASSERT_TRUE(
            same_bits(y, linear(other, w->in_order(x), packed, {.out_dtype = mx::float32})));
        ASSERT_TRUE(
            same_bits(linear(context, x, weight, {.norm = LinearOptions::Norm{norm, 1e-6f}}),
                      linear(other, w->in_order(rms_norm(other, x, norm, 1e-6f)), packed)));
        if (rows > 40) continue;
        context.use_reference = true;
        // As Int8Linear.MatchesItsReference.
        ASSERT_TRUE(near(y, linear(context, x, weight, {.out_dtype = mx::float32}),
                         {.abs = 2e-4f, .rel = 1e-5f}));
        context.use_reference = false;
      }
      EXPECT_TRUE(kernel_ran(context, "linear", 2 * static_cast<int>(std::size(kRowCounts)),
                             int8_kernel()));
    }
  }
}

TEST(ColumnOrderOnCuda, AGpuHasNone) {
  if (!on_cuda()) GTEST_SKIP() << "needs a GPU";
  const Context context = make_context(1);
  const auto w = make_ordered(16, 128, four_bits(), mx::bfloat16);
  EXPECT_THROW(pack(context, *w, mx::bfloat16), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
