// The bytes of packed matrices of block floats.
#include <memory>

#include "ops/linear/pack/block_float_matrix.h"
#include "ops/linear/pack/gguf_matrix.h"
#include "ops/linear/pack/packed_bytes_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// A matrix of block floats, and what lies in front of its codes.
struct FloatSource {
  BlockFloatFormat format;
  BlockFloat kind;
  int n, k;
  Codes codes;
  Bytes values = {}, scales = {};
  std::vector<uint16_t> pairs = {};
  std::shared_ptr<std::vector<float>> nested = nullptr;
  float multiplier = 1, divisor = 1;

  int groups() const {
    return (k + static_cast<int>(format.group_size) - 1) / static_cast<int>(format.group_size);
  }
  BlockFloatRows rows(bool int8) const {
    return {.values = values.data(),
            .scales = scales.data(),
            .n = n,
            .k = k,
            .format = kind,
            .multiplier = multiplier,
            .divisor = divisor,
            .int8_activations = int8,
            .pairs = pairs.data(),
            .nested = nested};
  }
  uint8_t byte_scale(size_t group) const {
    const int higher = kind == BlockFloat::kMxfp4 ? 1 : kind == BlockFloat::kMxfp8 ? 8 : 0;
    return static_cast<uint8_t>(scales[group] + higher);
  }
  // Half of 2^-127 counts as zero.
  int code(int row, int at) const {
    const int c = codes.at(row, at);
    const bool least = kind == BlockFloat::kMxfp4 && (c & 7) == 1 &&
                       scales[static_cast<size_t>(row * groups() + at / 32)] == 0;
    return least ? c & 8 : c;
  }
  Bytes block_scales(const std::function<int(int)>& source, int k0) const {
    const int size = static_cast<int>(format.group_size);
    Bytes out;
    for (int at = k0; at < k0 + 128; at += size)
      for (int i = 0; i < 16; ++i) {
        const bool there = source(i) >= 0 && at < k;
        const auto group = static_cast<size_t>(there ? source(i) * groups() + at / size : 0);
        if (format.scale_bytes == 1) {
          out.push_back(there ? byte_scale(group) : 0);
        } else {
          const float scale = there ? read<float>(scales, group) : 0;
          append(out, kind == BlockFloat::kFloat8 ? scale * 256 : scale);
        }
      }
    if (kind == BlockFloat::kScaledNvfp4)
      for (const float number : {multiplier, divisor, 0.0f, 0.0f}) append(out, number);
    for (int i = 0; i < 16 && kind == BlockFloat::kNestedNf4; ++i)
      append(out, source(i) < 0 ? uint16_t{0}
                                : pairs[static_cast<size_t>(source(i) * (k / 128) + k0 / 128)]);
    return out;
  }
};

FloatSource float_source(BlockFloat kind, int n, int k, uint32_t seed) {
  std::mt19937 generator(seed);
  const BlockFloatFormat format = block_float_format(kind);
  FloatSource s = {.format = format,
                   .kind = kind,
                   .n = n,
                   .k = k,
                   .codes = random_codes(n, k, format.bits, generator)};
  if (format.bits == 8)
    for (uint8_t& code : s.codes.values) code = (code & 0x7F) == 0x7F ? 0 : code;  // NaN
  s.values = s.codes.stored();
  if (format.scale_bytes == 4) {
    std::uniform_real_distribution<float> scale(-2, 2);
    for (int i = 0; i < n * s.groups(); ++i) append(s.scales, scale(generator));
  } else {
    const int most = kind == BlockFloat::kNestedNf4 ? 255 : is_nvfp4(kind) ? 0x7E : kMostScaleByte;
    s.scales = random_bytes(n * s.groups(), 0, most, generator);
    for (size_t i = 0; i < s.scales.size(); i += 3) s.scales[i] = 0;
  }
  if (kind == BlockFloat::kScaledNvfp4) s.multiplier = 0.37f;
  if (kind == BlockFloat::kNestedNf4) {
    s.nested = std::make_shared<std::vector<float>>(256 + 2 * 300, 0.5f);
    for (int i = 0; i < n * k / 128; ++i)
      s.pairs.push_back(static_cast<uint16_t>(generator() % 300));
  }
  return s;
}

constexpr BlockFloat kFloats[] = {BlockFloat::kMxfp4,       BlockFloat::kMxfp8,  BlockFloat::kNvfp4,
                                  BlockFloat::kScaledNvfp4, BlockFloat::kFloat8, BlockFloat::kNf4,
                                  BlockFloat::kNestedNf4};

CodeBytes float_order(const PackedMatrix& packed) {
  if (block_float_format(packed.block_float).bits == 8) return whole_bytes;
  return packed.turned ? nibble_plane : nibble_words;
}

TEST(PackedFloats, BytesOfBlockFloatsAreThoseOfTheLayout) {
  int turned = 0, plain = 0;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const BlockFloat kind : kFloats)
      for (const Shape& shape : kShapes)
        for (const bool int8 : {false, true}) {
          if (int8 && !is_e2m1(kind)) continue;
          if (kind == BlockFloat::kNestedNf4 && shape.k % 128 != 0) continue;
          SCOPED_TRACE(text(isa, shape, int8) + ", " + block_float_format(kind).name);
          const FloatSource s = float_source(kind, shape.n, shape.k, 11);
          const BlockFloatRows rows = s.rows(int8);
          const PackedMatrix packed =
              pack_block_float_matrix(cpu_context(), {&rows, 1}, mx::bfloat16, shape.interleaved);
          ++(packed.turned ? turned : plain);
          ASSERT_NO_FATAL_FAILURE(expect_packed(
              packed, [&](int row, int at) { return s.code(row, at); }, float_order(packed),
              /*narrow=*/0,
              [&](const auto& source, int k0) { return s.block_scales(source, k0); }));
        }
  }
  EXPECT_GT(turned, 0);
  EXPECT_GT(plain, 0);
}

// Any number of columns goes with FP8, also one that 4 do not divide.
TEST(PackedFloats, BytesOfFp8WithAnyNumberOfColumns) {
  for (const int k : {1, 7, 130, 259}) {
    SCOPED_TRACE(k);
    const FloatSource s = float_source(BlockFloat::kFloat8, 19, k, 3);
    const BlockFloatRows rows = s.rows(/*int8=*/false);
    ASSERT_NO_FATAL_FAILURE(expect_packed(
        pack_block_float_matrix(cpu_context(), {&rows, 1}, mx::bfloat16),
        [&](int row, int at) { return s.code(row, at); }, whole_bytes, /*narrow=*/0,
        [&](const auto& source, int k0) { return s.block_scales(source, k0); }));
  }
}

// The same codes and scales as a GGUF file has them: 32 codes behind their scale, or four times 16
// behind four.
Bytes gguf_blocks(const FloatSource& s) {
  const int size = static_cast<int>(s.format.group_size), of_block = size == 32 ? 1 : 4;
  Bytes out;
  for (int row = 0; row < s.n; ++row)
    for (int group = 0; group < s.k / size; group += of_block) {
      for (int g = group; g < group + of_block; ++g)
        out.push_back(s.scales[static_cast<size_t>(row * s.groups() + g)]);
      for (int g = group; g < group + of_block; ++g)
        append_group(out, s.codes, row, g * size, size);
    }
  return out;
}

TEST(PackedFloats, BytesOfGgufsSmallFloatsAreThoseOfBlockFloats) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const GgufFormat format : {GgufFormat::kMxfp4, GgufFormat::kNvfp4})
      for (const Shape& shape : kShapes)
        for (const bool int8 : {false, true}) {
          SCOPED_TRACE(text(isa, shape, int8) + ", " + gguf_block(format).name);
          const bool nvfp4 = format == GgufFormat::kNvfp4;
          const FloatSource s = float_source(nvfp4 ? BlockFloat::kScaledNvfp4 : BlockFloat::kMxfp4,
                                             shape.n, shape.k, 5);
          const Bytes blocks = gguf_blocks(s);
          const GgufRows rows = {.data = blocks.data(),
                                 .n = shape.n,
                                 .k = shape.k,
                                 .format = format,
                                 .multiplier = s.multiplier,
                                 .int8_activations = int8};
          const PackedMatrix packed =
              pack_gguf_matrix(cpu_context(), {&rows, 1}, mx::bfloat16, shape.interleaved);
          ASSERT_NO_FATAL_FAILURE(expect_packed(
              packed, [&](int row, int at) { return s.code(row, at); }, float_order(packed),
              /*narrow=*/0,
              [&](const auto& source, int k0) { return s.block_scales(source, k0); }));
        }
  }
}
}  // namespace
}  // namespace quire::ops
