#include "ops/linear/gguf/gguf_reference.h"

#include <cmath>

#include "ops/cpu/half.h"

namespace quire::ops {
namespace {

constexpr int kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
constexpr float kFloat4Values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

float half_at(const uint8_t* p) { return to_float(F16{static_cast<uint16_t>(p[0] | p[1] << 8)}); }

// Value i of 32 nibbles in 16 bytes.
int nibble(const uint8_t* qs, int64_t i) { return qs[i % 16] >> (i / 16 * 4) & 15; }
int bit(const uint8_t* bytes, int64_t i) { return bytes[i / 8] >> (i % 8) & 1; }

float q4_0(const uint8_t* b, int64_t i) {
  return half_at(b) * static_cast<float>(nibble(b + 2, i) - 8);
}
float q4_1(const uint8_t* b, int64_t i) {
  return half_at(b) * static_cast<float>(nibble(b + 4, i)) + half_at(b + 2);
}
float q5_0(const uint8_t* b, int64_t i) {
  return half_at(b) * static_cast<float>(nibble(b + 6, i) + 16 * bit(b + 2, i) - 16);
}
float q5_1(const uint8_t* b, int64_t i) {
  return half_at(b) * static_cast<float>(nibble(b + 8, i) + 16 * bit(b + 4, i)) + half_at(b + 2);
}
float q8_0(const uint8_t* b, int64_t i) {
  return half_at(b) * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}

// Two bits of each weight: 128 weights are 32 bytes, a quarter of them in each two bits.
int two_bits(const uint8_t* qs, int64_t i) {
  return qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

float q2_k(const uint8_t* b, int64_t i) {
  const int scale = b[i / 16];
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  return d * static_cast<float>(scale & 15) * static_cast<float>(two_bits(b + 16, i)) -
         dmin * static_cast<float>(scale >> 4);
}

float q3_k(const uint8_t* b, int64_t i) {
  const uint8_t *hm = b, *qs = b + 32, *sc = b + 96;
  const int64_t g = i / 16;
  const int low = sc[g % 8] >> (g / 8 * 4) & 15, high = sc[8 + g % 4] >> (g / 4 * 2) & 3;
  const int q = two_bits(qs, i) + 4 * (hm[i % 32] >> (i / 32) & 1);
  return half_at(b + 108) * static_cast<float>(low + 16 * high - 32) * static_cast<float>(q - 4);
}

// Of group j of q4_k and q5_k: eight scales and eight minima of 6 bits in 12 bytes.
struct ScaleAndMin {
  int scale, min;
};
ScaleAndMin six_bit_scales(const uint8_t* sc, int64_t j) {
  if (j < 4) return {sc[j] & 63, sc[j + 4] & 63};
  return {(sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4, sc[j + 4] >> 4 | (sc[j] >> 6) << 4};
}

float with_min(const uint8_t* b, int64_t i, int q) {
  const ScaleAndMin s = six_bit_scales(b + 4, i / 32);
  return half_at(b) * static_cast<float>(s.scale) * static_cast<float>(q) -
         half_at(b + 2) * static_cast<float>(s.min);
}

// 64 weights are 32 bytes, half of them in each nibble.
int nibble_of_64(const uint8_t* qs, int64_t i) {
  return qs[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

float q4_k(const uint8_t* b, int64_t i) { return with_min(b, i, nibble_of_64(b + 16, i)); }
float q5_k(const uint8_t* b, int64_t i) {
  return with_min(b, i, nibble_of_64(b + 48, i) + 16 * (b[16 + i % 32] >> (i / 32) & 1));
}

float q6_k(const uint8_t* b, int64_t i) {
  const int64_t half = i / 128, at = i % 128;
  const int low = b[half * 64 + at % 64] >> (at / 64 * 4) & 15;
  const int high = b[128 + half * 32 + at % 32] >> (at / 32 * 2) & 3;
  const auto scale = static_cast<int8_t>(b[192 + i / 16]);
  return half_at(b + 208) * static_cast<float>(scale) * static_cast<float>(low + 16 * high - 32);
}

float iq4_nl(const uint8_t* b, int64_t i) {
  return half_at(b) * static_cast<float>(kIq4Values[nibble(b + 2, i)]);
}

float iq4_xs(const uint8_t* b, int64_t i) {
  const int64_t j = i / 32;
  const int high = (b[2] | b[3] << 8) >> (2 * j) & 3, low = b[4 + j / 2] >> (j % 2 * 4) & 15;
  return half_at(b) * static_cast<float>(low + 16 * high - 32) *
         static_cast<float>(kIq4Values[nibble(b + 8 + 16 * j, i % 32)]);
}

float mxfp4(const uint8_t* b, int64_t i) {
  const int code = nibble(b + 1, i);
  const float value = kFloat4Values[code & 7];
  return std::ldexp(code & 8 ? -value : value, b[0] - 127);
}

float nvfp4(const uint8_t* b, int64_t i) {
  const int64_t group = i / 16, at = i % 16;
  const int byte = b[group], mantissa = byte & 7, exponent = byte >> 3 & 15;
  if (byte == 0x7F) return 0;
  const float scale = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                    : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  const int code = b[4 + group * 8 + at % 8] >> (at / 8 * 4) & 15;
  const float value = kFloat4Values[code & 7];
  return scale * (code & 8 ? -value : value);
}

using Value = float (*)(const uint8_t* block, int64_t i);

Value value_of(GgufFormat format) {
  switch (format) {
    case GgufFormat::kNone:
      break;
    case GgufFormat::kQ4_0:
      return q4_0;
    case GgufFormat::kQ4_1:
      return q4_1;
    case GgufFormat::kQ5_0:
      return q5_0;
    case GgufFormat::kQ5_1:
      return q5_1;
    case GgufFormat::kQ8_0:
      return q8_0;
    case GgufFormat::kQ2_K:
      return q2_k;
    case GgufFormat::kQ3_K:
      return q3_k;
    case GgufFormat::kQ4_K:
      return q4_k;
    case GgufFormat::kQ5_K:
      return q5_k;
    case GgufFormat::kQ6_K:
      return q6_k;
    case GgufFormat::kIq4Nl:
      return iq4_nl;
    case GgufFormat::kIq4Xs:
      return iq4_xs;
    case GgufFormat::kMxfp4:
      return mxfp4;
    case GgufFormat::kNvfp4:
      return nvfp4;
  }
  return nullptr;
}

}  // namespace

void gguf_reference(GgufFormat format, const void* row, int64_t k, float* out) {
  const GgufBlock block = gguf_block(format);
  const Value value = value_of(format);
  const auto* bytes = static_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < k; ++i)  // kNone has no rows
    out[i] = value(bytes + i / block.weights * block.bytes, i % block.weights);  // NOLINT
}

}  // namespace quire::ops
