#include <cstring>

#include "ops/embedding/embedding.h"
#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/linear_reference.h"
#include "ops/linear/linear_test_util.h"
#include "ops/linear/pack/block_float_matrix.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr BlockFloat kFormats[] = {BlockFloat::kMxfp4, BlockFloat::kMxfp8, BlockFloat::kNvfp4};

// Evaluated codes and scales, and what mx::dequantize makes of them.
struct Source {
  mx::array values, scales;
  mx::array dense;  // [N, K] in the dtype asked for: float32, rounded once
  BlockFloatRows rows;
};

Source make_source(mx::array values, mx::array scales, int n, int k, BlockFloat format,
                   mx::Dtype dtype) {
  const BlockFloatFormat f = block_float_format(format);
  const mx::array wide =
      mx::dequantize(values, scales, std::nullopt, static_cast<int>(f.group_size), f.bits, f.name,
                     std::nullopt, mx::float32);
  Source s = {.values = values, .scales = scales, .dense = mx::astype(wide, dtype), .rows = {}};
  mx::eval(s.values, s.scales, s.dense);
  s.rows = {.values = s.values.data<void>(),
            .scales = s.scales.data<void>(),
            .n = n,
            .k = k,
            .format = format};
  return s;
}

// Any codes; scales of the given bytes.
Source random_source(int n, int k, BlockFloat format, mx::Dtype dtype, uint32_t seed,
                     int least_scale, int most_scale) {
  const BlockFloatFormat f = block_float_format(format);
  std::mt19937 generator(seed);
  std::vector<uint8_t> codes(static_cast<size_t>(n) * k * f.bits / 8);
  for (uint8_t& byte : codes) {
    byte = static_cast<uint8_t>(generator());
    if (format == BlockFloat::kMxfp8 && (byte & 0x7F) == 0x7F) byte ^= 1;  // NaN
  }
  std::uniform_int_distribution<int> scale(least_scale, most_scale);
  std::vector<uint8_t> scales(static_cast<size_t>(n) * k / f.group_size);
  for (uint8_t& byte : scales) byte = static_cast<uint8_t>(scale(generator));
  const mx::array values(reinterpret_cast<const uint32_t*>(codes.data()), {n, k * f.bits / 32},
                         mx::uint32);
  const mx::array bytes(scales.data(), {n, k / static_cast<int>(f.group_size)}, mx::uint8);
  return make_source(values, bytes, n, k, format, dtype);
}

// Scales that leave float16 some room on both sides.
Source usual_source(int n, int k, BlockFloat format, mx::Dtype dtype, uint32_t seed = 7) {
  return format == BlockFloat::kNvfp4   ? random_source(n, k, format, dtype, seed, 0, 0x40)
         : format == BlockFloat::kMxfp4 ? random_source(n, k, format, dtype, seed, 112, 130)
                                        : random_source(n, k, format, dtype, seed, 104, 122);
}

std::string text(const std::string& isa, mx::Dtype dtype, BlockFloat format) {
  return isa + " " + dtype_name(dtype) + ", " + block_float_format(format).name;
}

// The one promise: the bits of the dense weight that MLX dequantises it to, for every number of
// rows, on every instruction set.
TEST(BlockFloatLinear, EqualsTheDenseLinearOfTheDequantisedWeight) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const BlockFloat format : kFormats) {
        for (const auto& [n, k] :
             {std::pair(70, 128), {33, 416}, {112, 640}, {16, 176}, {24, 2080}}) {
          if (k % block_float_format(format).group_size != 0) continue;
          SCOPED_TRACE(text(isa, dtype, format) + ", " + std::to_string(n) + " x " +
                       std::to_string(k));
          const Context context = make_context(2);
          const Source s = usual_source(n, k, format, dtype);
          ASSERT_NO_FATAL_FAILURE(expect_bits_of_dense(
              context, {.weight = pack_block_float_matrix(context, {&s.rows, 1}, dtype)},
              {.weight = pack_dense(context, s.dense)}, product_kernel(dtype)));
        }
      }
    }
  }
}

// The same for what linear() computes on the way, with gates and ups interleaved.
TEST(BlockFloatLinear, NormResidualAndSiluAreThoseOfTheDenseLinear) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const BlockFloat format : kFormats) {
        SCOPED_TRACE(text(isa, dtype, format));
        const Context context = make_context(2);
        const Source s = usual_source(2 * 40, 224, format, dtype);
        const auto pack = [&](bool interleave) {
          return LinearWeight{
              .weight = pack_block_float_matrix(context, {&s.rows, 1}, dtype, interleave)};
        };
        if (!on_cuda()) {
          EXPECT_TRUE(same_bits(unpack_matrix(pack(true).weight), s.dense));
        }
        ASSERT_NO_FATAL_FAILURE(
            expect_fused_bits_of_dense(context, {.plain = pack(false), .gated = pack(true)},
                                       pack_both_orders(context, s.dense)));
      }
    }
  }
}

// Every scale that is one: also those whose products are denormals, which count as zero.
TEST(BlockFloatLinear, AnyScaleGivesTheBitsOfTheDenseWeight) {
  const int n = 32, k = 128;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const BlockFloat format : kFormats) {
        const int most = format == BlockFloat::kNvfp4 ? 0x7E : kMostScaleByte;
        for (int scale = 0; scale <= most; scale += scale < 4 || scale > most - 4 ? 1 : 23) {
          if (on_cuda() && scale < 16) continue;  // denormals, which are numbers there
          const Context context = make_context(2), dense_context = make_context(2);
          const Source s = random_source(n, k, format, dtype, 5, scale, scale);
          const LinearWeight w = {.weight = pack_block_float_matrix(context, {&s.rows, 1}, dtype)};
          const LinearWeight dense = {.weight = pack_dense(context, s.dense)};
          for (const int rows : {1, 20, 40}) {
            const mx::array x = random_array({rows, k}, dtype, 1);
            ASSERT_TRUE(same_bits(linear(context, x, w, {.out_dtype = mx::float32}),
                                  linear(dense_context, x, dense, {.out_dtype = mx::float32})))
                << text(isa, dtype, format) << ", scale " << scale << ", " << rows << " rows";
          }
        }
      }
    }
  }
}

// A sum that falls below the smallest normal number is a zero with a sign, and a zero weight, which
// has a sign too, leaves it so or does not.
TEST(BlockFloatLinear, ZerosKeepTheirSigns) {
  const int n = 96, k = 128;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const BlockFloat format : kFormats) {
      const BlockFloatFormat f = block_float_format(format);
      // Minus the least value, then minus zeros; of odd rows plus and minus zeros by turns.
      const uint8_t minus = f.bits == 4 ? 8 : 0x80;
      std::vector<uint8_t> codes(static_cast<size_t>(n) * k * f.bits / 8);
      const size_t row_bytes = codes.size() / n;
      for (size_t i = 0; i < codes.size(); ++i) {
        const bool odd_row = i / row_bytes % 2 != 0;
        const uint8_t code = i % row_bytes == 0 ? minus | 1 : odd_row && i % 3 ? 0 : minus;
        codes[i] = f.bits == 4 ? static_cast<uint8_t>(code | minus << 4) : code;
      }
      const std::vector<uint8_t> scales(static_cast<size_t>(n) * k / f.group_size,
                                        format == BlockFloat::kNvfp4 ? 1 : 97);
      const Context context = make_context(2), dense_context = make_context(2);
      const Source s =
          make_source(mx::array(reinterpret_cast<const uint32_t*>(codes.data()),
                                {n, k * f.bits / 32}, mx::uint32),
                      mx::array(scales.data(), {n, k / static_cast<int>(f.group_size)}, mx::uint8),
                      n, k, format, mx::bfloat16);
      const LinearWeight w = {.weight =
                                  pack_block_float_matrix(context, {&s.rows, 1}, mx::bfloat16)};
      const LinearWeight dense = {.weight = pack_dense(context, s.dense)};
      for (const int rows : {1, 3, 40}) {
        const mx::array x = mx::full({rows, k}, 0x1p-120f, mx::bfloat16);
        const mx::array y = linear(context, x, w, {.out_dtype = mx::float32});
        ASSERT_TRUE(same_bits(y, linear(dense_context, x, dense, {.out_dtype = mx::float32})))
            << text(isa, mx::bfloat16, format) << ", " << rows << " rows";
      }
    }
  }
}

TEST(BlockFloatLinear, RowsAndEmbeddingsAreWhatMlxDequantises) {
  const std::vector<int32_t> ids = {0, 36, 15, 16, 17, 0, 31, 32};
  const mx::array at(ids.data(), {8}, mx::int32);
  for (const BlockFloat format : kFormats) {
    for (const mx::Dtype dtype : float_dtypes()) {
      SCOPED_TRACE(text("", dtype, format));
      Context context = make_context(2);
      const Source s = usual_source(37, 384, format, dtype);
      const PackedMatrix packed = pack_block_float_matrix(context, {&s.rows, 1}, dtype);
      if (!on_cuda()) {
        EXPECT_TRUE(same_bits(unpack_matrix(packed), s.dense));
      }
      const auto rows = dequantise_rows(context, packed);
      EXPECT_EQ(std::memcmp(rows.get(), s.dense.data<void>(), s.dense.nbytes()), 0);
      EXPECT_TRUE(same_bits(embedding(context, at, packed), mx::take(s.dense, at, 0)));
      EXPECT_TRUE(kernel_ran(context, "embedding", 1));
      if (on_cuda()) continue;  // the reference reads the CPU's layout
      context.use_reference = true;
      EXPECT_TRUE(same_bits(embedding(context, at, packed), mx::take(s.dense, at, 0)));
    }
  }
}

// As many bytes as on disk: nothing is widened.
TEST(BlockFloatLinear, PartsAreStackedAndNothingIsWidened) {
  for (const BlockFloat format : kFormats) {
    const Context context = make_context(2);
    const Source a = usual_source(24, 256, format, mx::bfloat16, 3);
    const Source b = usual_source(40, 256, format, mx::bfloat16, 4);
    const BlockFloatRows parts[] = {a.rows, b.rows};
    const PackedMatrix packed = pack_block_float_matrix(context, parts, mx::bfloat16);
    mx::array dense = mx::concatenate({a.dense, b.dense}, 0);
    mx::eval(dense);
    const auto rows = dequantise_rows(context, packed);
    EXPECT_EQ(std::memcmp(rows.get(), dense.data<void>(), dense.nbytes()), 0);
    EXPECT_EQ(packed.nbytes(),
              a.values.nbytes() + a.scales.nbytes() + b.values.nbytes() + b.scales.nbytes());
  }
}

TEST(BlockFloatPack, RefusesWhatIsNoWeight) {
  const Context context = make_context(1);
  const auto pack = [&](const BlockFloatRows& rows) {
    return pack_block_float_matrix(context, {&rows, 1}, mx::bfloat16);
  };
  for (const BlockFloat format : kFormats) {
    const Source good = usual_source(16, 128, format, mx::bfloat16);
    EXPECT_NO_THROW(pack(good.rows));
    const int bad = format == BlockFloat::kNvfp4 ? 0x7F : kMostScaleByte + 1;
    EXPECT_THROW(pack(random_source(16, 128, format, mx::bfloat16, 7, bad, bad).rows),
                 std::invalid_argument);
    BlockFloatRows rows = good.rows;
    rows.k = 72;
    EXPECT_THROW(pack(rows), std::invalid_argument);
  }
  Source nan = usual_source(16, 128, BlockFloat::kMxfp8, mx::bfloat16);
  nan.values.data<uint32_t>()[7] |= 0x7F00;
  EXPECT_THROW(pack(nan.rows), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
