#include "ops/head_linear/head_linear.h"

#include <numeric>

#include "ops/linear/linear_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

struct Heads {
  std::vector<Weights> each;
  HeadWeights packed;
};

Heads random_heads(const Context& context, int heads, int n, int k, mx::Dtype dtype) {
  Heads result;
  std::vector<PackedMatrix> packed;
  for (int h = 0; h < heads; ++h) {
    const mx::array rows = random_array({n, k}, dtype, 20 + h, 0.5f);
    const RowMatrix source = {.data = rows.data<void>(), .n = n, .k = k, .dtype = dtype};
    packed.push_back(pack_matrix(context, {&source, 1}, dtype));
    result.each.push_back({.rows = rows, .packed = {.weight = packed.back()}});
  }
  result.packed = stack_heads(context, std::move(packed));
  return result;
}

mx::array part(const mx::array& x, int head, int begin, int end) {
  mx::array columns = mx::contiguous(mx::reshape(
      mx::slice(x, {0, head, begin}, {x.shape(0), head + 1, end}), {x.shape(0), end - begin}));
  mx::eval(columns);
  return columns;
}

struct Case {
  int tokens, heads, n, k, passed;
};
constexpr Case kCases[] = {{1, 4, 64, 32, 8},   {1, 20, 512, 192, 64}, {3, 5, 24, 40, 0},
                           {33, 3, 96, 64, 16}, {600, 2, 48, 56, 8},   {0, 2, 16, 16, 4}};

// Each head is linear() on its columns, bit for bit; what passes stays as it is.
TEST(HeadLinear, EqualsLinearForEachHead) {
  for (const auto& isa : isas_to_test()) {
    SCOPED_TRACE(isa);
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const Case& c : kCases) {
        const Context context = make_context(3);
        const Heads heads = random_heads(context, c.heads, c.n, c.k, dtype);
        const mx::array x = random_array({c.tokens, c.heads, c.passed + c.k}, dtype, 1);
        const mx::array y = head_linear(context, x, heads.packed, c.passed);
        mx::eval(y);
        const bool none = c.tokens == 0 && on_cuda();  // then none of a GPU's kernels is named
        EXPECT_TRUE(kernel_ran(context, "head_linear", 1, none ? nullptr : dense_kernel(dtype)));
        ASSERT_EQ(y.shape(), (mx::Shape{c.tokens, c.heads, c.n + c.passed}));
        for (int h = 0; h < c.heads; ++h) {
          const mx::array own = part(y, h, 0, c.n);
          const mx::array expected =
              linear(context, part(x, h, c.passed, c.passed + c.k), heads.each[h].packed);
          EXPECT_TRUE(on_metal() ? near(own, expected, units_of_largest(8, expected))
                                 : same_bits(own, expected));
          EXPECT_TRUE(same_bits(part(y, h, c.n, c.n + c.passed), part(x, h, 0, c.passed)));
        }
      }
  }
}

TEST(HeadLinear, MatchesDoublePrecision) {
  const Context context = make_context(2);
  const Heads heads = random_heads(context, 3, 40, 72, mx::float32);
  const mx::array x = random_array({7, 3, 8 + 72}, mx::float32, 1);
  const std::vector<float> y = to_floats(head_linear(context, x, heads.packed, 8));
  const std::vector<float> in = to_floats(x);
  for (int t = 0; t < 7; ++t)
    for (int h = 0; h < 3; ++h) {
      const std::vector<float> w = to_floats(heads.each[h].rows);
      for (int n = 0; n < 40; ++n) {
        double sum = 0;
        for (int k = 0; k < 72; ++k) sum += double{w[n * 72 + k]} * in[(t * 3 + h) * 80 + 8 + k];
        EXPECT_NEAR(y[(t * 3 + h) * 48 + n], sum, 1e-4);
      }
    }
}

TEST(HeadLinear, TheReferenceIsTheSameProduct) {
  const Context context = make_context(2);
  const Heads heads = random_heads(context, 4, 24, 32, mx::float32);
  const mx::array x = random_array({9, 4, 40}, mx::float32, 1);
  const mx::array y = head_linear(context, x, heads.packed, 8);
  Context reference = make_context(1, make_cpu_device());  // it reads the CPU's layout
  reference.use_reference = true;
  const Heads same_heads = random_heads(reference, 4, 24, 32, mx::float32);
  EXPECT_TRUE(
      near(y, head_linear(reference, x, same_heads.packed, 8), {.abs = 1e-4f, .rel = 1e-5f}));
  EXPECT_EQ(reference.kernels->count("head_linear", "reference"), 1);
}

TEST(HeadLinear, NamesWhatDoesNotFit) {
  const Context context = make_context(1);
  const Heads heads = random_heads(context, 2, 16, 16, mx::float32);
  const mx::array x = random_array({3, 2, 20}, mx::float32, 1);
  EXPECT_THROW(head_linear(context, x, heads.packed, 3), std::invalid_argument);
  EXPECT_THROW(head_linear(context, x, heads.packed, -1), std::invalid_argument);
  EXPECT_THROW(head_linear(context, mx::astype(x, mx::bfloat16), heads.packed, 4),
               std::invalid_argument);
  std::vector<PackedMatrix> mixed = {heads.each[0].packed.weight, heads.each[1].packed.weight};
  mixed[1].n = 8;
  EXPECT_THROW(stack_heads(context, mixed), std::invalid_argument);
  EXPECT_THROW(stack_heads(context, {}), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
