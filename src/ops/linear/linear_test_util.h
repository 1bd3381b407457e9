#pragma once
#include "ops/linear/linear.h"
#include "ops/linear/linear_kernel.h"
#include "ops/runtime/test_util.h"

// Shared by the tests of linear().
namespace quire::ops::testing {

// Numbers of rows around every edge of the kernels' tiles and blocks.
constexpr int kRowCounts[] = {1,  2,  3,  4,  5,  6,  7,  8,   12,  13,
                              16, 17, 31, 32, 33, 64, 65, 128, 300, 512};

// Evaluated rows and what they are packed into.
struct Weights {
  mx::array rows;  // [N, K]
  LinearWeight packed;
};

inline Weights random_weights(const Context& context, int n, int k, mx::Dtype dtype, bool bias,
                              bool interleave = false) {
  const mx::array rows = random_array({n, k}, dtype, 2, 0.5f);
  const RowMatrix source = {.data = rows.data<void>(), .n = n, .k = k, .dtype = dtype};
  Weights w = {.rows = rows,
               .packed = {.weight = pack_matrix(context, {&source, 1}, dtype, interleave)}};
  if (bias) w.packed.bias = random_array({n}, mx::float32, 3);
  return w;
}

inline mx::array matrix_rows(const mx::array& x, int begin, int count) {
  mx::array rows = mx::contiguous(mx::slice(x, {begin, 0}, {begin + count, x.shape(1)}));
  mx::eval(rows);
  return rows;
}

// Quantised weights and the dense ones of their values, as `context` and another one pack them:
// with a bias their outputs have the same bits, for 1 to 33 rows and numbers around those that
// kernels work on together; `kernel` ran for the quantised ones.
inline void expect_bits_of_dense(const Context& context, LinearWeight quantised, LinearWeight dense,
                                 const char* kernel) {
  std::vector<int> row_counts = {63, 64, 65, 191, 192, 193};
  for (int rows = 1; rows <= 33; ++rows) row_counts.push_back(rows);
  if (on_emulated_cpu()) row_counts = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 193};
  const Context other = make_context(context.pool->num_threads());
  const int n = static_cast<int>(dense.weight.n), k = static_cast<int>(dense.weight.k);
  quantised.bias = dense.bias = random_array({n}, mx::float32, 3);
  for (const int rows : row_counts) {
    const mx::array x = random_array({rows, k}, dense.weight.dtype, 1);
    ASSERT_TRUE(same_bits(linear(context, x, quantised, {.out_dtype = mx::float32}),
                          linear(other, x, dense, {.out_dtype = mx::float32})))
        << rows << " rows";
  }
  EXPECT_TRUE(kernel_ran(context, "linear", static_cast<int>(row_counts.size()), kernel));
}

// The same of a matrix and of its gates and ups interleaved.
struct BothOrders {
  LinearWeight plain, gated;
};
// ... for what linear() computes on the way: norm and gate, and a residual.
inline void expect_fused_bits_of_dense(const Context& context, const BothOrders& quantised,
                                       const BothOrders& dense) {
  const int n = static_cast<int>(dense.plain.weight.n), k = static_cast<int>(dense.plain.weight.k);
  const mx::Dtype dtype = dense.plain.weight.dtype;
  const mx::array norm = random_array({k}, mx::float32, 3);
  for (const int rows : {1, 5, 16, 20, 32, 50}) {
    const mx::array x = random_array({rows, k}, dtype, 1);
    const mx::array residual = random_array({rows, n}, dtype, 2);
    const LinearOptions silu = {.norm = LinearOptions::Norm{norm, 1e-6f}, .gate = Gate{}};
    const LinearOptions add = {.residual = residual};
    ASSERT_TRUE(
        same_bits(linear(context, x, quantised.gated, silu), linear(context, x, dense.gated, silu)))
        << rows << " rows";
    ASSERT_TRUE(
        same_bits(linear(context, x, quantised.plain, add), linear(context, x, dense.plain, add)))
        << rows << " rows";
  }
}
inline BothOrders pack_both_orders(const Context& context, const mx::array& rows) {
  const RowMatrix source = {
      .data = rows.data<void>(), .n = rows.shape(0), .k = rows.shape(1), .dtype = rows.dtype()};
  return {.plain = {.weight = pack_matrix(context, {&source, 1}, rows.dtype())},
          .gated = {.weight = pack_matrix(context, {&source, 1}, rows.dtype(), true)}};
}

// Rows among others, in other places of a tile, have the bits that they have in one call with all.
inline void expect_same_rows_in_any_batch(const Context& context, const LinearWeight& w) {
  constexpr int kMost = 512;
  const mx::array x = random_array({kMost, static_cast<int>(w.weight.k)}, w.weight.dtype, 1);
  const LinearOptions options = {.out_dtype = mx::float32};
  const mx::array whole = linear(context, x, w, options);
  for (const int m : kRowCounts) {
    const int begin = (kMost - m) / 2;
    ASSERT_TRUE(same_bits(linear(context, matrix_rows(x, begin, m), w, options),
                          matrix_rows(whole, begin, m)))
        << m << " rows";
  }
}

// The kernel that must serve products of this dtype, by weights that every unit for bfloat16 takes,
// on the instruction set in force.
inline const char* product_kernel(mx::Dtype dtype) {
  if (on_cuda()) return cuda_products(dtype);
  if (dtype != mx::bfloat16) return cpu_kernel_name();
  if (use_amx()) return "cpu_amx";
  if (use_avx512_bf16()) return "cpu_avx512_bf16";
  return use_neon_bf16() ? "cpu_neon_bf16" : cpu_kernel_name();
}
// The kernel that must serve dense weights.
inline const char* dense_kernel(mx::Dtype dtype) {
  return on_metal() ? "mlx" : product_kernel(dtype);
}

// `units` roundings of the largest element.
inline Bound units_of_largest(float units, const mx::array& expected) {
  float largest = 0;
  for (const float x : to_floats(expected)) largest = std::max(largest, std::abs(x));
  return {.abs = units * unit_roundoff(expected.dtype()) * largest};
}

}  // namespace quire::ops::testing
