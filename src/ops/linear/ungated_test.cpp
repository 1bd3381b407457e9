#include "ops/linear/ungated.h"

#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/gguf/gguf_test_util.h"
#include "ops/linear/linear_test_util.h"
#include "ops/linear/pack/stack_matrices.h"

// The product with the gate, and the gate of the product without it: the same bits.
namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr int kRows[] = {1, 2, 5, 16, 33, 70};

void expect_same_gates(const Context& context, LinearWeight gated, int seed) {
  const int n = static_cast<int>(gated.weight.n), k = static_cast<int>(gated.weight.k);
  const mx::Dtype dtype = gated.weight.dtype;
  gated.bias = random_array({n}, mx::float32, 3);
  const LinearWeight plain = ungated(context, gated);
  EXPECT_EQ(plain.weight.data.get(), gated.weight.data.get());
  const mx::array norm = random_array({k}, mx::float32, 4);
  const Gate gate = {.kind = Gate::Kind::kGeluTanh};
  for (const int rows : kRows) {
    const mx::array x = random_array({rows, k}, dtype, static_cast<uint32_t>(seed));
    const LinearOptions::Norm options{norm, 1e-6f};
    const mx::array y = linear(context, x, plain, {.norm = options});
    ASSERT_TRUE(same_bits(gate_ungated(context, y, gated.weight, gate),
                          linear(context, x, gated, {.norm = options, .gate = gate})))
        << rows << " rows, N " << n;
  }
}

class Ungated : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_cuda()) GTEST_SKIP() << "matrices lie otherwise there";
  }
};

TEST_F(Ungated, GivesTheGateOfDenseWeights) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const auto& [n, k] : {std::pair(34, 70), {96, 256}, {2, 33}}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype));
        const Context context = make_context(2);
        expect_same_gates(context, random_weights(context, n, k, dtype, false, true).packed, n);
        EXPECT_TRUE(kernel_ran(context, "linear", 2 * std::size(kRows), dense_kernel(dtype)));
      }
  }
}

TEST_F(Ungated, GivesTheGateOfQuantisedWeights) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      SCOPED_TRACE(isa + " " + dtype_name(dtype));
      const Context context = make_context(2);
      for (const int n : {34, 96}) {
        const AffineSource affine = affine_source(
            n, 256, {.bits = 4, .group_size = 64, .scale_dtype = mx::float32}, dtype, 5);
        expect_same_gates(
            context, {.weight = pack_affine_matrix(context, {&affine.rows, 1}, dtype, true)}, n);
        for (const GgufFormat format : {GgufFormat::kQ4_K, GgufFormat::kQ6_K}) {
          const auto blocks = gguf_source(n, 256, format, 6);
          expect_same_gates(
              context, {.weight = pack_gguf_matrix(context, {&blocks->rows, 1}, dtype, true)}, n);
        }
      }
      EXPECT_EQ(context.kernels->count("linear", "reference"), 0);
    }
  }
}

TEST_F(Ungated, GivesTheGateOfPartsInDifferentFormats) {
  for (const mx::Dtype dtype : float_dtypes()) {
    const Context context = make_context(2);
    const auto gate = gguf_source(24, 256, GgufFormat::kQ4_K, 1);
    const auto up = gguf_source(24, 256, GgufFormat::kQ6_K, 2);
    PackedMatrix both = stack_matrices(context,
                                       {pack_gguf_matrix(context, {&gate->rows, 1}, dtype),
                                        pack_gguf_matrix(context, {&up->rows, 1}, dtype)},
                                       /*interleave=*/true);
    expect_same_gates(context, {.weight = std::move(both)}, 7);
    EXPECT_TRUE(kernel_ran(context, "linear", 2 * std::size(kRows), "cpu_parts"));
  }
}

TEST_F(Ungated, RefusesAPlainWeight) {
  const Context context = make_context(1);
  EXPECT_THROW(ungated(random_weights(context, 32, 32, mx::float32, false).packed.weight),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
