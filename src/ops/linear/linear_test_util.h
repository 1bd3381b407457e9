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

// The kernel that must serve dense weights of this dtype on the instruction set in force.
inline const char* dense_kernel(mx::Dtype dtype) {
  if (on_cuda()) return "cuda";
  if (dtype == mx::bfloat16 && use_amx()) return "cpu_amx";
  if (dtype == mx::bfloat16 && use_avx512_bf16()) return "cpu_avx512_bf16";
  return cpu_kernel_name();
}

}  // namespace quire::ops::testing
