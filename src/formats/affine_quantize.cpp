#include "formats/affine_quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "formats/read_float.h"

namespace quire::formats {
namespace {

void write_float(float x, std::byte* to, DType dtype, int64_t index) {
  if (dtype == DType::kF32) {
    std::memcpy(to + 4 * index, &x, sizeof(x));
    return;
  }
  uint16_t bits;
  if (dtype == DType::kF16) {
    bits = std::bit_cast<uint16_t>(static_cast<Float16>(x));
  } else {
    const auto wide = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = wide + 0x7FFFu + (wide >> 16 & 1u);
    bits = static_cast<uint16_t>((std::isnan(x) ? wide | 0x400000u : rounded) >> 16);
  }
  std::memcpy(to + 2 * index, &bits, sizeof(bits));
}

// To the nearest integer, ties to even; |x| < 2^22.
float round_even(float x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: no fraction bits are left
  return (x + kShift) - kShift;
}

struct Affine {
  float scale, bias;
};

// MLX's choice, from the `quantize` of its CPU backend.
Affine choose(const float* w, int64_t count, float bins) {
  float low = std::numeric_limits<float>::infinity(), high = -low;
  for (int64_t i = 0; i < count; ++i) {
    high = std::max(high, w[i]);
    low = std::min(low, w[i]);
  }
  const bool from_low = std::abs(low) > std::abs(high);
  const float width = std::max((high - low) / bins, 1e-7f);
  const float scale = from_low ? width : -width;
  const float edge = from_low ? low : high;
  const float steps = std::rint(edge / scale);
  return steps != 0 ? Affine{edge / steps, edge} : Affine{scale, 0.0f};
}

// Eight values take `bits` bytes.
void write_eight(const float* w, const Affine& affine, int bits, std::byte* out) {
  const float most = static_cast<float>((1 << bits) - 1);
  uint64_t stream = 0;
  for (int i = 0; i < 8; ++i) {
    const float q = round_even((w[i] - affine.bias) / affine.scale);
    stream |= static_cast<uint64_t>(std::min(std::max(q, 0.0f), most)) << (i * bits);
  }
  std::memcpy(out, &stream, static_cast<size_t>(bits));
}

}  // namespace

void quantize_row(const std::byte* row, DType dtype, int64_t k, const QuantisedFormat& format,
                  const AffineRowOut& out) {
  const float bins = static_cast<float>((1 << format.bits) - 1);
  float w[128];
  for (int64_t group = 0; group < k / format.group_size; ++group) {
    const int64_t begin = group * format.group_size;
    for (int64_t i = 0; i < format.group_size; ++i) w[i] = read_float(row, dtype, begin + i);
    const Affine affine = choose(w, format.group_size, bins);
    std::byte* values = out.values + begin * format.bits / 8;
    for (int64_t i = 0; i < format.group_size; i += 8, values += format.bits)
      write_eight(w + i, affine, format.bits, values);
    write_float(affine.scale, out.scales, dtype, group);
    write_float(affine.bias, out.biases, dtype, group);
  }
}

}  // namespace quire::formats
