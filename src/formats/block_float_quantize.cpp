#include "formats/block_float_quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "formats/read_float.h"

namespace quire::formats {
namespace {

// e4m3 of a float, to nearest even; sizes above 448 become 448.
uint8_t float8(float x) {
  constexpr float kMost = 448.0f;
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7F;
  const float size = std::min(std::abs(x), kMost);
  // Below 2^-6 all values are multiples of 2^-9.
  const int exponent = size < 0x1p-6f ? -6 : std::ilogb(size);
  const float steps = std::nearbyint(std::ldexp(size, 3 - exponent));
  return static_cast<uint8_t>(sign | (static_cast<int>(steps) + 8 * (exponent + 6)));
}

// The nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6; of two the smaller one; the sign of no zero.
uint8_t float4(float x) {
  constexpr float kEdges[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const float size = std::abs(x);
  uint8_t code = 0;
  for (const float edge : kEdges) code += size > edge;
  return code && x < 0 ? code | 8 : code;
}

struct Scale {
  uint8_t byte = 0;
  float value = 0;
};

// So that the largest of the group is not above the largest code (nvfp4: but for rounding).
Scale choose(float largest, DType dtype, const QuantisedFormat& format) {
  float scale = largest / (format.bits == 4 ? 6.0f : 448.0f);
  // MLX divides in the dtype of the weights; only the short range of float16 shows.
  if (dtype == DType::kF16) scale = static_cast<float>(static_cast<Float16>(scale));
  if (format.mode == QuantMode::kNvfp4) {
    const uint8_t byte = float8(scale);
    return {byte, float8_value(byte)};
  }
  if (scale == 0) return {127, 1.0f};
  int exponent = 0;
  if (std::frexp(scale, &exponent) == 0.5f) --exponent;  // a power of two
  exponent = std::isfinite(scale) ? std::clamp(exponent, -127, 127) : 127;
  return {static_cast<uint8_t>(exponent + 127), std::ldexp(1.0f, exponent)};
}

void write_group(const float* w, const Scale& scale, const QuantisedFormat& format,
                 std::byte* out) {
  const auto scaled = [&](int64_t i) { return scale.value == 0 ? 0.0f : w[i] / scale.value; };
  if (format.bits == 8) {
    for (int64_t i = 0; i < format.group_size; ++i) out[i] = std::byte{float8(scaled(i))};
    return;
  }
  for (int64_t i = 0; i < format.group_size; i += 2)
    out[i / 2] = std::byte(float4(scaled(i)) | float4(scaled(i + 1)) << 4);
}

}  // namespace

float float8_value(uint8_t byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const float size = exponent ? std::ldexp(8.0f + static_cast<float>(mantissa), exponent - 10)
                              : std::ldexp(static_cast<float>(mantissa), -9);
  return byte & 0x80 ? -size : size;
}

int64_t quantize_block_float_row(const std::byte* row, DType dtype, int64_t k,
                                 const QuantisedFormat& format, const BlockFloatRowOut& out) {
  float w[32];
  int64_t lost = 0;
  for (int64_t group = 0; group < k / format.group_size; ++group) {
    const int64_t begin = group * format.group_size;
    float largest = 0;
    for (int64_t i = 0; i < format.group_size; ++i) {
      w[i] = read_float(row, dtype, begin + i);
      largest = std::max(largest, std::abs(w[i]));
    }
    const Scale scale = choose(largest, dtype, format);
    out.scales[group] = std::byte{scale.byte};
    write_group(w, scale, format, out.values + begin * format.bits / 8);
    lost += scale.value == 0 && largest > 0;
  }
  return lost;
}

}  // namespace quire::formats
