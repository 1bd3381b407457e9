#pragma once
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ops/linear/gguf/gguf_reference.h"
#include "ops/linear/pack/gguf_matrix.h"
#include "ops/runtime/test_util.h"

// Matrices in GGUF's formats for tests, as a file holds them.
namespace quire::ops::testing {

inline constexpr GgufFormat kGgufFormats[] = {
    GgufFormat::kQ4_0,  GgufFormat::kQ4_1, GgufFormat::kQ5_0,  GgufFormat::kQ5_1,
    GgufFormat::kQ8_0,  GgufFormat::kQ2_K, GgufFormat::kQ3_K,  GgufFormat::kQ4_K,
    GgufFormat::kQ5_K,  GgufFormat::kQ6_K, GgufFormat::kIq4Nl, GgufFormat::kIq4Xs,
    GgufFormat::kMxfp4, GgufFormat::kNvfp4};

// Where the float16 scales of a block begin.
inline std::vector<int64_t> gguf_half_places(GgufFormat format) {
  switch (format) {
    case GgufFormat::kMxfp4:
    case GgufFormat::kNvfp4:
      return {};
    case GgufFormat::kQ2_K:
      return {80, 82};
    case GgufFormat::kQ3_K:
      return {108};
    case GgufFormat::kQ6_K:
      return {208};
    case GgufFormat::kQ4_1:
    case GgufFormat::kQ5_1:
    case GgufFormat::kQ4_K:
    case GgufFormat::kQ5_K:
      return {0, 2};
    default:
      return {0};
  }
}

// Random codes and small scales; float16 scales of both signs around 2^-12, as models have them,
// and now and then one that is denormal or 0.
struct GgufSource {
  std::vector<uint8_t> bytes;
  std::vector<float> values;  // gguf_reference
  GgufRows rows;

  mx::array dense(mx::Dtype dtype) const {
    const mx::array wide(values.data(), {static_cast<int>(rows.n), static_cast<int>(rows.k)},
                         mx::float32);
    mx::array rounded = mx::astype(wide, dtype);
    mx::eval(rounded);
    return rounded;
  }
};

inline uint16_t random_half(std::mt19937& generator) {
  const auto bits = static_cast<uint16_t>(generator());
  const int kind = bits & 63;
  const auto exponent = static_cast<uint16_t>(kind == 0 ? 0 : 1 + kind % 3);
  return static_cast<uint16_t>((bits & 0x83FF) | exponent << 10);
}

// One without a sign: small as models have them, and now and then any.
inline uint8_t random_e4m3(std::mt19937& generator) {
  const auto bits = static_cast<uint8_t>(generator());
  return bits < 16 ? static_cast<uint8_t>(generator() & 0x7F)
                   : static_cast<uint8_t>(0x18 + bits % 32);
}

// Scale `i` of a block of row `row`.
using HalfOfRow = std::function<uint16_t(int64_t row, size_t i, std::mt19937&)>;

// Not copyable: rows lead into bytes.
inline std::shared_ptr<const GgufSource> gguf_source(
    int n, int k, GgufFormat format, uint32_t seed,
    const HalfOfRow& half_of = [](int64_t, size_t, std::mt19937& g) { return random_half(g); }) {
  std::mt19937 generator(seed);
  const GgufBlock block = gguf_block(format);
  auto source = std::make_shared<GgufSource>();
  source->bytes.resize(static_cast<size_t>(n * gguf_row_bytes(format, k)));
  for (uint8_t& byte : source->bytes) byte = static_cast<uint8_t>(generator());
  for (size_t at = 0; at < source->bytes.size(); at += static_cast<size_t>(block.bytes)) {
    if (format == GgufFormat::kMxfp4)
      source->bytes[at] = static_cast<uint8_t>(112 + generator() % 16);
    if (format == GgufFormat::kNvfp4)
      for (size_t i = 0; i < 4; ++i) source->bytes[at + i] = random_e4m3(generator);
    const std::vector<int64_t> places = gguf_half_places(format);
    for (size_t i = 0; i < places.size(); ++i) {
      const int64_t row = static_cast<int64_t>(at) / gguf_row_bytes(format, k);
      const uint16_t half = half_of(row, i, generator);
      std::memcpy(&source->bytes[at + static_cast<size_t>(places[i])], &half, sizeof(half));
    }
  }
  source->values.resize(static_cast<size_t>(n) * k);
  for (int row = 0; row < n; ++row)
    gguf_reference(format, source->bytes.data() + row * gguf_row_bytes(format, k), k,
                   source->values.data() + static_cast<int64_t>(row) * k);
  source->rows = {.data = source->bytes.data(), .n = n, .k = k, .format = format};
  return source;
}

}  // namespace quire::ops::testing
