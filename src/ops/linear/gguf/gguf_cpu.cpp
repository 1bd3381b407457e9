#include "ops/linear/gguf/gguf_cpu.h"

#include <cstring>

namespace quire::ops {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;

// Scales of one row: value = scale * code + bias.
struct GgufScale {
  float scale = 0, bias = 0;
};

float half_at(const uint8_t* halves, int64_t i) {
  uint16_t bits;
  std::memcpy(&bits, halves + 2 * i, sizeof(bits));
  return to_float(F16{bits});
}
template <class Word>
Word word_at(const uint8_t* words, int64_t i) {
  Word word;
  std::memcpy(&word, words + i * static_cast<int64_t>(sizeof(Word)), sizeof(word));
  return word;
}

// Of one group of one row of a block.
GgufScale scale_of(GgufFormat format, const uint8_t* block, int64_t group, int64_t row) {
  const auto scale = [](float d, int s) { return d * static_cast<float>(s); };
  const float d = half_at(block, row), next = half_at(block, 16 + row);  // of super-blocks
  GgufScale result;
  switch (format) {
    case GgufFormat::kQ4_0:
    case GgufFormat::kQ5_0:
    case GgufFormat::kQ8_0:
    case GgufFormat::kIq4Nl:
      result.scale = half_at(block, group * 16 + row);
      break;
    case GgufFormat::kQ5_1:
      return {half_at(block, group * 16 + row), half_at(block + 128, group * 16 + row)};
    case GgufFormat::kQ2_K: {
      const int byte = block[64 + group * 16 + row];
      return {scale(d, byte & 15), -scale(next, byte >> 4)};
    }
    case GgufFormat::kQ3_K: {
      const auto low = static_cast<int>(word_at<uint32_t>(block + 32, row) >> (4 * group) & 15);
      const int high = word_at<uint16_t>(block + 96, row) >> (2 * group) & 3;
      result.scale = scale(d, low + 16 * high - 32);
      break;
    }
    case GgufFormat::kQ4_K:
    case GgufFormat::kQ5_K: {
      const auto byte = static_cast<int>(word_at<uint32_t>(block + 64, row) >> (8 * group) & 255);
      const int low = word_at<uint16_t>(block + 128, row) >> (4 * group) & 15;
      return {scale(d, byte & 63), -scale(next, (byte >> 6) * 16 + low)};
    }
    case GgufFormat::kQ6_K:
      result.scale = scale(d, static_cast<int8_t>(block[32 + group * 16 + row]));
      break;
    case GgufFormat::kIq4Xs: {
      const int low = word_at<uint16_t>(block + 32, row) >> (4 * group) & 15;
      const int high = block[64 + row] >> (2 * group) & 3;
      result.scale = scale(d, low + 16 * high - 32);
      break;
    }
    case GgufFormat::kNone:
    case GgufFormat::kQ4_1:
    case GgufFormat::kMxfp4:
    case GgufFormat::kNvfp4:
      break;
  }
  result.bias = -scale(result.scale, gguf_layout(format).zero);
  return result;
}

template <class T>
void row_as(const QuantisedLayout& layout, const uint8_t* data, int64_t row, uint8_t* out) {
  const GgufLayout& format = gguf_layout(layout.gguf);
  for (int64_t k = 0; k < layout.k; k += format.group) {
    const uint8_t* block = data + layout.offset(row / kPanel, k / kBlock);
    const int64_t in_block = k % kBlock;
    const GgufScale s = scale_of(layout.gguf, block, in_block / format.group, row % kPanel);
    for (int64_t i = 0; i < format.group; ++i, out += sizeof(T)) {
      const uint8_t code = layout.code(block, row % kPanel, in_block + i);
      const int c = format.from_table ? kIq4Values[code] : code;
      const T value = from_float<T>(s.scale * static_cast<float>(c) + s.bias);
      std::memcpy(out, &value, sizeof(T));
    }
  }
}

}  // namespace

void gguf_row_cpu(const QuantisedLayout& layout, const void* data, int64_t row, FloatType type,
                  void* out) {
  const auto* from = static_cast<const uint8_t*>(data);
  auto* to = static_cast<uint8_t*>(out);
  switch (type) {
    case FloatType::kF32:
      return row_as<float>(layout, from, row, to);
    case FloatType::kF16:
      return row_as<F16>(layout, from, row, to);
    case FloatType::kBf16:
      return row_as<Bf16>(layout, from, row, to);
  }
}

}  // namespace quire::ops
