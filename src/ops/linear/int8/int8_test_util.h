#pragma once
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/linear_test_util.h"

// Shared by the tests of products with activations of 8 bits.
namespace quire::ops::testing {

// x as its rounding leaves it (int8_rows_cpu.h), exactly: whole numbers times a scale for each
// group.
inline std::vector<double> rounded_to_int8(const std::vector<float>& x, int64_t group) {
  std::vector<double> out;
  const auto count = static_cast<size_t>(group);
  for (size_t begin = 0; begin < x.size(); begin += count) {
    float most = 0;
    for (size_t i = 0; i < count; ++i) most = std::max(most, std::abs(x[begin + i]));
    for (size_t i = 0; i < count; ++i)
      out.push_back(most == 0 ? 0
                              : std::nearbyint(x[begin + i] * (127.0f / most)) *
                                    static_cast<double>(most / 127.0f));
  }
  return out;
}

// The kernel that must run.
inline const char* int8_kernel() {
  if (use_amx()) return "cpu_amx_int8";
  if (use_avx512_vnni()) return "cpu_avx512_vnni";
  if (use_neon_dotprod()) return "cpu_neon_dotprod";
  return use_avx2_vnni() ? "cpu_avx2_vnni" : cpu_kernel_name();
}

// Bits: of a row alone, of any number of rows, on every instruction set, with all that linear()
// computes on the way. make_weight(context, interleave): a weight [n, k] for activations of
// `dtype`. `kernel` says which kernel must run.
inline void expect_bits_of_rows(
    int n, int k, mx::Dtype dtype, const std::string& format,
    const std::function<LinearWeight(const Context&, bool)>& make_weight,
    const std::function<const char*()>& kernel) {
  const mx::array x = random_array({512, k}, dtype, 1), norm = random_array({k}, mx::float32, 3);
  const mx::array residual = random_array({512, n}, dtype, 2);
  std::optional<mx::array> plain, gated;
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    if (isa == "portable") continue;  // has no fused multiply-add
    const ForcedIsa forced(isa);
    const Context context = make_context(2);
    const LinearWeight w = make_weight(context, false), interleaved = make_weight(context, true);
    std::vector<int> counts = {257, 49, 48,
                               42,  41, 28};  // around what goes by parts, registers and tiles
    counts.insert(counts.begin(), std::rbegin(kRowCounts),
                  std::rend(kRowCounts));  // first the most
    for (const int rows : counts) {
      SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + format + ", " + std::to_string(rows) +
                   " rows");
      const mx::array some = matrix_rows(x, 0, rows);
      const mx::array silu = linear(context, some, interleaved,
                                    {.norm = LinearOptions::Norm{norm, 1e-6f}, .gate = Gate{}});
      const mx::array y = linear(context, some, w, {.residual = matrix_rows(residual, 0, rows)});
      mx::eval(y, silu);
      if (!plain) plain = y, gated = silu;
      ASSERT_TRUE(same_bits(y, matrix_rows(*plain, 0, rows)));
      ASSERT_TRUE(same_bits(silu, matrix_rows(*gated, 0, rows)));
    }
    ASSERT_TRUE(kernel_ran(context, "linear", 2 * std::ssize(counts), kernel()));
    // The last rows of a larger batch are others' neighbours.
    const mx::array last = matrix_rows(x, 511, 1);
    ASSERT_TRUE(same_bits(linear(context, last, w, {.residual = matrix_rows(residual, 511, 1)}),
                          matrix_rows(*plain, 511, 1)));
  }
}

}  // namespace quire::ops::testing
