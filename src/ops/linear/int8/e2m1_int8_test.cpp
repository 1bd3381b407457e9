// 4-bit floats (e2m1) times activations of 8 bits: what GGUF's files do not have of them.
#include <cmath>
#include <cstring>
#include <optional>

#include "ops/linear/block_float/float4_test_util.h"
#include "ops/linear/int8/int8_test_util.h"
#include "ops/linear/linear_test_util.h"
#include "ops/linear/pack/block_float_matrix.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// Random codes and the scales that it is given, as MLX stores them.
struct Source {
  BlockFloat format;
  int n, k;
  float multiplier, divisor;
  Float4Codes codes;
  std::vector<uint8_t> scales;

  int64_t group() const { return block_float_format(format).group_size; }
  BlockFloatRows rows(bool int8 = true) const {
    return {.values = codes.bytes.data(),
            .scales = scales.data(),
            .n = n,
            .k = k,
            .format = format,
            .multiplier = multiplier,
            .divisor = divisor,
            .int8_activations = int8};
  }
  double scale(int row, int at) const {
    const int byte = scales[static_cast<size_t>((static_cast<int64_t>(row) * k + at) / group())];
    if (format == BlockFloat::kMxfp4) return std::ldexp(1, byte - 127);
    return e4m3(byte) * multiplier / divisor;
  }
  double value(int row, int at) const { return e2m1(codes.at(row, at)) * scale(row, at); }
};

Source make_source(BlockFloat format, int n, int k, int least_scale, int most_scale,
                   float multiplier = 1, float divisor = 1) {
  std::mt19937 generator(7);
  Source s = {.format = format,
              .n = n,
              .k = k,
              .multiplier = multiplier,
              .divisor = divisor,
              .codes = Float4Codes(n, k, generator),
              .scales = {}};
  std::uniform_int_distribution<int> scale(least_scale, most_scale);
  s.scales.resize(static_cast<size_t>(n) * k / s.group());
  for (uint8_t& byte : s.scales) byte = static_cast<uint8_t>(scale(generator));
  return s;
}

LinearWeight pack(const Context& context, const Source& s, mx::Dtype dtype,
                  bool interleave = false) {
  const BlockFloatRows rows = s.rows();
  return {.weight = pack_block_float_matrix(context, {&rows, 1}, dtype, interleave)};
}

// One product and one sum for each group, of three numbers that were rounded (the scale of nvfp4
// twice, x's once), without fused multiply-adds: six roundings, of values that are at most the sum
// of all sizes.
void expect_near_float64(const Source& s, int rows) {
  const Context context = make_context(2);
  const mx::array x = random_array({rows, s.k}, mx::bfloat16, 1);
  const auto y =
      to_floats(linear(context, x, pack(context, s, mx::bfloat16), {.out_dtype = mx::float32}));
  const std::vector<double> a = rounded_to_int8(to_floats(x), s.group());
  const int64_t sums = 6 * s.k / s.group() + 4;
  const double per_sum = unit_roundoff(mx::float32) * static_cast<double>(sums) * 1.01;
  for (int t = 0; t < rows; ++t) {
    for (int j = 0; j < s.n; ++j) {
      double exact = 0, sizes = 0;
      for (int i = 0; i < s.k; ++i) {
        const double product = a[t * s.k + i] * s.value(j, i);
        exact += product, sizes += std::abs(product);
      }
      ASSERT_LE(std::abs(y[t * s.n + j] - exact), per_sum * sizes + 1e-30) << t << ", " << j;
    }
  }
  EXPECT_TRUE(kernel_ran(context, "linear", 1, int8_kernel()));
}

// Scales of MLX's nvfp4, and those of a tensor besides, which are multiplied with or divided by.
TEST(Int8LinearE2m1, IsWithinItsErrorBoundOfFloat64) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const int rows : {1, 2, 7, 40, 50}) {
      SCOPED_TRACE(isa + ", " + std::to_string(rows) + " rows");
      const int n = 70, k = 384;
      ASSERT_NO_FATAL_FAILURE(
          expect_near_float64(make_source(BlockFloat::kMxfp4, n, k, 112, 130), rows));
      ASSERT_NO_FATAL_FAILURE(
          expect_near_float64(make_source(BlockFloat::kNvfp4, n, k, 0, 0x7E), rows));
      for (const auto& [multiplier, divisor] : {std::pair(0.00011f, 1.0f), {1.0f, 7321.7f}})
        ASSERT_NO_FATAL_FAILURE(expect_near_float64(
            make_source(BlockFloat::kScaledNvfp4, n, k, 0, 0x7E, multiplier, divisor), rows));
    }
  }
}

// Every scale that mxfp4 has; the least, of which half is no float32, count as zero.
TEST(Int8LinearE2m1, TakesEveryScale) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (int scale = 0; scale <= 240; scale += scale < 4 ? 1 : 16) {
      SCOPED_TRACE(isa + ", scale " + std::to_string(scale));
      const Source s = make_source(BlockFloat::kMxfp4, 32, 128, scale, scale);
      for (const int rows : {1, 49}) ASSERT_NO_FATAL_FAILURE(expect_near_float64(s, rows));
    }
  }
}

// Also where K ends inside a packed block.
TEST(Int8LinearE2m1, ARowHasTheSameBitsInAnyBatchAndOnEveryInstructionSet) {
  for (const BlockFloat format : {BlockFloat::kNvfp4, BlockFloat::kScaledNvfp4}) {
    for (const int k : {768, 592}) {
      const Source s = make_source(format, 2 * 40, k, 0x18, 0x40, 1.0f,
                                   format == BlockFloat::kNvfp4 ? 1.0f : 7321.7f);
      for (const mx::Dtype dtype : float_dtypes())
        ASSERT_NO_FATAL_FAILURE(expect_bits_of_rows(
            s.n, k, dtype, block_float_format(format).name,
            [&](const Context& context, bool interleave) {
              return pack(context, s, dtype, interleave);
            },
            int8_kernel));
    }
  }
}

TEST(Int8LinearE2m1, RefusesWhatItCannotMultiply) {
  const Context context = make_context(1);
  const auto refusal = [&](const std::vector<BlockFloatRows>& parts) -> std::string {
    try {
      pack_block_float_matrix(context, parts, mx::bfloat16);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  std::vector<uint8_t> zeros(16 * 256 * 4);
  for (const BlockFloat format : {BlockFloat::kMxfp8, BlockFloat::kFloat8, BlockFloat::kNf4}) {
    const BlockFloatRows rows = {.values = zeros.data(),
                                 .scales = zeros.data(),
                                 .n = 16,
                                 .k = 256,
                                 .format = format,
                                 .int8_activations = true};
    EXPECT_NE(refusal({rows}).find(block_float_format(format).name), std::string::npos);
  }
  const Source s = make_source(BlockFloat::kMxfp4, 16, 256, 127, 127);
  EXPECT_NE(refusal({s.rows(), s.rows(/*int8=*/false)}).find("with and without"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::ops
