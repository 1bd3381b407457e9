#include <array>

#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/gguf/gguf_test_util.h"
#include "ops/linear/linear_reference.h"
#include "ops/linear/linear_test_util.h"
#include "ops/linear/pack/stack_matrices.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// q, k and v as mixes have them, and a dense part.
struct Mix {
  std::vector<std::shared_ptr<const GgufSource>> sources;
  mx::array tail;   // [16, K]
  mx::array dense;  // all of them
  PackedMatrix packed;
};

Mix mixed(const Context& context, int k, mx::Dtype dtype) {
  Mix mix = {.sources = {gguf_source(48, k, GgufFormat::kQ4_K, 1),
                         gguf_source(16, k, GgufFormat::kQ4_K, 2),
                         gguf_source(24, k, GgufFormat::kQ6_K, 3)},
             .tail = random_array({16, k}, dtype, 4),
             .dense = mx::array(0.0f),
             .packed = {}};
  std::vector<GgufRows> rows;
  std::vector<mx::array> dense;
  for (const auto& s : mix.sources) rows.push_back(s->rows), dense.push_back(s->dense(dtype));
  dense.push_back(mix.tail);
  mix.dense = mx::concatenate(dense, 0);
  const PackedMatrix first = pack_gguf_matrix(context, rows, dtype);
  EXPECT_EQ(first.parts ? first.parts->size() : 0, 2u);  // one of q and k, one of v
  std::vector<PackedMatrix> parts = *first.parts;
  parts.push_back(pack_dense(context, mix.tail));
  mix.packed = stack_matrices(context, std::move(parts));
  return mix;
}

// Parts of different formats have the bits of the one dense matrix of their values, with all that
// linear() computes on the way.
TEST(LinearParts, EqualTheDenseLinearOfTheirValues) {
  const int k = 512, n = 104;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      const Context context = make_context(2), dense_context = make_context(2);
      const Mix mix = mixed(context, k, dtype);
      const mx::array bias = random_array({n}, mx::float32, 5);
      const mx::array norm = random_array({k}, mx::float32, 6);
      const LinearWeight parts = {.weight = mix.packed, .bias = bias};
      const LinearWeight dense = {.weight = pack_dense(context, mix.dense), .bias = bias};
      if (!on_cuda()) {
        EXPECT_TRUE(mx::array_equal(unpack_matrix(mix.packed), mix.dense).item<bool>());
      }
      int runs = 0;
      for (const int rows : kRowCounts) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + std::to_string(rows) + " rows");
        const mx::array x = random_array({rows, k}, dtype, 7);
        const LinearOptions ways[] = {
            {.out_dtype = mx::float32},
            {.norm = LinearOptions::Norm{norm, 1e-6f}},
            {.residual = random_array({rows, n}, dtype, 8)},
        };
        for (const LinearOptions& way : ways) {
          ASSERT_TRUE(
              same_bits(linear(context, x, parts, way), linear(dense_context, x, dense, way)));
          ++runs;
        }
      }
      EXPECT_TRUE(kernel_ran(context, "linear", runs, on_cuda() ? "cuda_parts" : "cpu_parts"));
    }
  }
}

TEST(LinearParts, GatesAndUpsOfDifferentFormats) {
  const int k = 256, half = 40;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      const Context context = make_context(2), dense_context = make_context(2);
      const auto gate = gguf_source(half, k, GgufFormat::kQ5_K, 1),
                 up = gguf_source(half, k, GgufFormat::kIq4Xs, 2);
      const GgufRows rows[] = {gate->rows, up->rows};
      const mx::array values = mx::concatenate({gate->dense(dtype), up->dense(dtype)}, 0);
      mx::eval(values);
      const RowMatrix dense_rows = {
          .data = values.data<void>(), .n = 2 * half, .k = k, .dtype = dtype};
      const mx::array bias = random_array({2 * half}, mx::float32, 5);
      const LinearWeight parts = {.weight = pack_gguf_matrix(context, rows, dtype, true),
                                  .bias = bias};
      const LinearWeight dense = {.weight = pack_matrix(context, {&dense_rows, 1}, dtype, true),
                                  .bias = bias};
      const LinearOptions silu = {.gate = Gate{}};
      for (const int t : {1, 5, 33}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + std::to_string(t) + " rows");
        const mx::array x = random_array({t, k}, dtype, 7);
        ASSERT_TRUE(
            same_bits(linear(context, x, parts, silu), linear(dense_context, x, dense, silu)));
      }
    }
  }
}

TEST(LinearParts, RefusesWhatDoesNotStack) {
  const Context context = make_context(1);
  const auto pack = [&](int n, int k, GgufFormat format, bool interleave = false) {
    return pack_gguf_matrix(context, {&gguf_source(n, k, format, 1)->rows, 1}, mx::bfloat16,
                            interleave);
  };
  const auto a = pack(16, 256, GgufFormat::kQ4_K), b = pack(16, 512, GgufFormat::kQ6_K),
             c = pack(32, 256, GgufFormat::kQ6_K);
  EXPECT_THROW(stack_matrices(context, {a, b}), std::invalid_argument);
  EXPECT_THROW(stack_matrices(context, {a, c}, true), std::invalid_argument);
  EXPECT_THROW(stack_matrices(context, {}), std::invalid_argument);
  EXPECT_THROW(stack_matrices(context, {a, stack_matrices(context, {a, c})}),
               std::invalid_argument);
  EXPECT_THROW(stack_matrices(context, {a, pack(32, 256, GgufFormat::kQ6_K, true)}),
               std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
