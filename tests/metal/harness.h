#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "emulator.h"
#include "ops/cpu/half.h"

// For tests of Metal kernels: values of a kernel's float types, and comparisons with float64.
namespace quire::emulator::testing {

using ops::FloatType;

// Floats as the bytes of a type, and back. The memory ends with the last one.
inline std::vector<uint8_t> encode(const std::vector<float>& x, FloatType type) {
  std::vector<uint8_t> out(x.size() * static_cast<size_t>(ops::float_type_bytes(type)));
  for (size_t i = 0; i < x.size(); ++i) {
    if (type == FloatType::kF32) {
      std::memcpy(&out[4 * i], &x[i], 4);
      continue;
    }
    const uint16_t bits = type == FloatType::kBf16 ? ops::from_float<ops::Bf16>(x[i]).bits
                                                   : ops::from_float<ops::F16>(x[i]).bits;
    std::memcpy(&out[2 * i], &bits, 2);
  }
  return out;
}
inline std::vector<float> decode(const std::vector<uint8_t>& bytes, FloatType type) {
  std::vector<float> out(bytes.size() / static_cast<size_t>(ops::float_type_bytes(type)));
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits;
    if (type == FloatType::kF32) {
      std::memcpy(&out[i], &bytes[4 * i], 4);
    } else {
      std::memcpy(&bits, &bytes[2 * i], 2);
      out[i] = type == FloatType::kBf16 ? to_float(ops::Bf16{bits}) : to_float(ops::F16{bits});
    }
  }
  return out;
}

inline std::vector<float> random_floats(size_t size, FloatType type, uint32_t seed,
                                        float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(size);
  for (float& x : out) x = ops::round_through(normal(random) * scale, type);
  return out;
}

// Memory that nobody wrote: NaN in every float type.
inline std::vector<uint8_t> unwritten(size_t values, FloatType type) {
  return std::vector<uint8_t>(values * static_cast<size_t>(ops::float_type_bytes(type)), 0xFF);
}

// Half a unit in the last place, relative.
inline double rounding(FloatType type) {
  return type == FloatType::kBf16 ? 0x1p-8 : (type == FloatType::kF16 ? 0x1p-11 : 0x1p-24);
}
// As kernels' host names have it.
inline const char* name(FloatType type) {
  return type == FloatType::kBf16 ? "bfloat" : (type == FloatType::kF16 ? "half" : "float");
}
inline constexpr FloatType kTypes[] = {FloatType::kF32, FloatType::kF16, FloatType::kBf16};

// The largest |got - want| / (|want| + floor) is at most `bound`.
inline void expect_near(const std::vector<float>& got, const std::vector<double>& want,
                        double bound, double floor = 1e-2) {
  ASSERT_EQ(got.size(), want.size());
  double worst = 0;
  size_t where = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = std::abs(got[i] - want[i]) / (std::abs(want[i]) + floor);
    if (error <= worst) continue;
    worst = std::isnan(error) ? INFINITY : error;
    where = i;
  }
  EXPECT_LE(worst, bound) << "element " << where << " is " << got[where] << ", not " << want[where];
}

}  // namespace quire::emulator::testing
