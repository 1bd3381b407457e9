#pragma once
#include <cmath>
#include <vector>

#include "ops/cpu/cpu_isa.h"

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

// The kernel that must run, if `tiles` say whether that of AMX serves the format.
inline const char* int8_kernel(bool tiles) {
  if (use_amx() && tiles) return "cpu_amx_int8";
  if (use_avx512_vnni()) return "cpu_avx512_vnni";
  return use_avx2_vnni() ? "cpu_avx2_vnni" : cpu_kernel_name();
}

}  // namespace quire::ops::testing
