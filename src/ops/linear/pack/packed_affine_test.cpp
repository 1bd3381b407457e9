// The bytes of packed affine weights.
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/gguf_matrix.h"
#include "ops/linear/pack/packed_bytes_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// Affine weights. Scales and biases, or bytes of zero points, are any bits.
struct AffineBytes {
  AffineFormat format;
  Codes codes;
  Bytes values, scales, biases;

  AffineRows rows() const {
    return {.values = values.data(),
            .scales = scales.data(),
            .biases = format.zeros == ZeroPoints::kSame ? nullptr : biases.data(),
            .n = codes.n,
            .k = codes.k,
            .format = format};
  }
  // The group of the source in which k is.
  size_t group(int row, int at) const {
    const int size = static_cast<int>(format.group_size);
    return static_cast<size_t>(row * (codes.k / size) + at / size);
  }
};

AffineBytes affine_bytes(const AffineFormat& format, int n, int k, uint32_t seed) {
  std::mt19937 generator(seed);
  const int groups = n * k / static_cast<int>(format.group_size);
  const int bytes = static_cast<int>(format.scale_dtype.size()) * groups;
  const bool zeros = format.zeros == ZeroPoints::kBytes;
  AffineBytes s = {.format = format,
                   .codes = random_codes(n, k, format.bits, generator),
                   .values = {},
                   .scales = random_bytes(bytes, 0, 0x3F, generator),
                   .biases = random_bytes(zeros ? groups : bytes, 0, 0x3F, generator)};
  s.values = s.codes.stored();
  return s;
}

// What all of a stack of one format have in front of the codes, in groups of `size`.
Bytes affine_scales(const AffineFormat& packed, const AffineBytes& part, int k,
                    const std::function<int(int)>& source, int k0) {
  Bytes out, behind;
  const auto wide = [&](const Bytes& from, size_t i) { return read<uint16_t>(from, i); };
  for (int at = k0; at < k0 + 128; at += static_cast<int>(packed.group_size)) {
    for (int i = 0; i < 16; ++i) {
      const bool there = source(i) >= 0 && at < k;
      const size_t group = there ? part.group(source(i), at) : 0;
      if (packed.scale_dtype == mx::float32) {
        append(out, there ? read<uint32_t>(part.scales, group) : 0u);
        append(behind, there ? read<uint32_t>(part.biases, group) : 0u);
      } else if (packed.zeros == ZeroPoints::kNone) {
        append(out, there ? static_cast<uint32_t>(wide(part.scales, group)) << 16 |
                                wide(part.biases, group)
                          : 0u);
      } else {
        append(out, there ? wide(part.scales, group) : uint16_t{0});
        if (packed.zeros == ZeroPoints::kBytes) behind.push_back(there ? part.biases[group] : 0);
      }
    }
    if (packed.scale_dtype == mx::float32)
      out.insert(out.end(), behind.begin(), behind.end()), behind.clear();
  }
  out.insert(out.end(), behind.begin(), behind.end());
  return out;
}

CodeBytes affine_order(const PackedMatrix& packed) {
  if (packed.affine->bits <= 4) return packed.turned ? turned_nibbles : nibble_words;
  return packed.turned ? turned_bytes : whole_bytes;
}

int narrow_of(const PackedMatrix& packed) {
  const int bits = packed.affine->bits;
  return bits == 4 || bits == 8 ? 0 : bits;
}

TEST(PackedAffine, BytesOfAffineWeightsAreThoseOfTheLayout) {
  const auto check = [&](const std::string& isa, const AffineFormat& format, const Shape& shape) {
    if (shape.k % format.group_size != 0) return;
    SCOPED_TRACE(text(isa, shape, format.int8_activations) + ", " + std::to_string(format.bits) +
                 " bits by " + std::to_string(format.group_size));
    const AffineBytes s = affine_bytes(format, shape.n, shape.k, 13);
    const AffineRows rows = s.rows();
    const PackedMatrix packed =
        pack_affine_matrix(cpu_context(), {&rows, 1}, mx::bfloat16, shape.interleaved);
    expect_packed(
        packed, [&](int row, int at) { return s.codes.at(row, at); }, affine_order(packed),
        narrow_of(packed),
        [&](const auto& source, int k0) {
          return affine_scales(*packed.affine, s, shape.k, source, k0);
        });
  };
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const Shape& shape : kShapes)
      for (const int bits : {2, 3, 4, 5, 6, 8})
        for (const bool int8 : {false, true}) {
          const auto format = [&](int64_t group, mx::Dtype dtype, ZeroPoints zeros) {
            return AffineFormat{.bits = bits,
                                .group_size = group,
                                .scale_dtype = dtype,
                                .zeros = zeros,
                                .least_zero = zeros == ZeroPoints::kNone ? 0 : 1,
                                .int8_activations = int8};
          };
          check(isa, format(32, mx::bfloat16, ZeroPoints::kNone), shape);
          check(isa, format(64, mx::float16, ZeroPoints::kBytes), shape);
          check(isa, format(128, mx::bfloat16, ZeroPoints::kSame), shape);
          check(isa, format(64, mx::float32, ZeroPoints::kNone), shape);
          ASSERT_FALSE(::testing::Test::HasFailure());
        }
  }
}

TEST(PackedAffine, BytesOfGgufsQ4_1AreThoseOfAffineWeights) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const Shape& shape : kShapes)
      for (const bool int8 : {false, true}) {
        SCOPED_TRACE(text(isa, shape, int8));
        const AffineBytes s = affine_bytes(
            {.bits = 4, .group_size = 32, .scale_dtype = mx::float16}, shape.n, shape.k, 17);
        Bytes blocks;
        for (int row = 0; row < shape.n; ++row)
          for (int k = 0; k < shape.k; k += 32) {
            append(blocks, read<uint16_t>(s.scales, s.group(row, k)));
            append(blocks, read<uint16_t>(s.biases, s.group(row, k)));
            append_group(blocks, s.codes, row, k, 32);
          }
        const GgufRows rows = {.data = blocks.data(),
                               .n = shape.n,
                               .k = shape.k,
                               .format = GgufFormat::kQ4_1,
                               .int8_activations = int8};
        const PackedMatrix packed =
            pack_gguf_matrix(cpu_context(), {&rows, 1}, mx::bfloat16, shape.interleaved);
        ASSERT_NO_FATAL_FAILURE(expect_packed(
            packed, [&](int row, int at) { return s.codes.at(row, at); }, affine_order(packed),
            /*narrow=*/0,
            [&](const auto& source, int k0) {
              return affine_scales(*packed.affine, s, shape.k, source, k0);
            }));
      }
  }
}

// Parts of fewer bits, in larger groups, become what the widest one is in the smallest groups.
TEST(PackedAffine, BytesOfPartsThatDifferAreThoseOfTheLayout) {
  const int k = 320, n = 21;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const bool int8 : {false, true})
      for (const auto& [few, many] : {std::pair(2, 4), {3, 4}, {2, 3}, {4, 8}, {3, 8}, {4, 6}}) {
        SCOPED_TRACE(isa + ", " + std::to_string(few) + " and " + std::to_string(many) + " bits");
        const AffineFormat format = {
            .bits = few, .group_size = 64, .scale_dtype = mx::bfloat16, .int8_activations = int8};
        AffineFormat wider = format;
        wider.bits = many;
        wider.group_size = 32;
        const AffineBytes parts[] = {affine_bytes(format, n, k, 1), affine_bytes(wider, n, k, 2)};
        const AffineRows rows[] = {parts[0].rows(), parts[1].rows()};
        const PackedMatrix packed = pack_affine_matrix(cpu_context(), rows, mx::bfloat16);
        ASSERT_NO_FATAL_FAILURE(expect_packed(
            packed, [&](int row, int at) { return parts[row / n].codes.at(row % n, at); },
            affine_order(packed), narrow_of(packed),
            [&](const auto& source, int k0) {
              Bytes out;
              for (int at = k0; at < k0 + 128; at += 32)
                for (int i = 0; i < 16; ++i) {
                  const bool there = source(i) >= 0 && at < k;
                  const AffineBytes& part = parts[there ? source(i) / n : 0];
                  const size_t group = there ? part.group(source(i) % n, at) : 0;
                  append(out, there ? static_cast<uint32_t>(read<uint16_t>(part.scales, group))
                                              << 16 |
                                          read<uint16_t>(part.biases, group)
                                    : 0u);
                }
              return out;
            }));
      }
  }
}

}  // namespace
}  // namespace quire::ops
