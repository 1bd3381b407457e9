#include "ops/linear/int8/int8_linear.h"

#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/int8/int8_test_util.h"
#include "ops/linear/linear_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// With a scale for each group of a row of x, and some with one for the whole row.
std::vector<AffineFormat> formats() {
  std::vector<AffineFormat> all = affine_formats(/*int8_activations=*/true);
  const size_t count = all.size();
  for (size_t i = 0; i < count; ++i) {
    AffineFormat format = all[i];
    format.per_token = true;
    if (format.bits == 8 || (format.bits == 4 && format.group_size == 64)) all.push_back(format);
  }
  return all;
}

// Columns of a row of x of which the largest |x| is the scale.
int64_t columns_of_scale(const AffineFormat& format, int64_t k) {
  return format.per_token ? k : format.group_size;
}

LinearWeight random_weight(const Context& context, int n, int k, const AffineFormat& format,
                           mx::Dtype dtype, bool interleave) {
  const AffineSource source = affine_source(n, k, format, dtype, 7);
  return {.weight = pack_affine_matrix(context, {&source.rows, 1}, dtype, interleave)};
}

// Against the same arithmetic in float32 MLX ops. What differs is the order of the float sums: K/32
// additions of terms of magnitude |x| |w|, then one rounding.
TEST(Int8Linear, MatchesItsReference) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const AffineFormat& format : formats()) {
        Context context = make_context(2);
        const LinearWeight w = random_weight(context, 70, 384, format, dtype, false);
        for (const int rows : {1, 5, 16, 17, 40, 50}) {
          SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + format_name(format) + ", " +
                       std::to_string(rows) + " rows");
          const mx::array x = random_array({rows, 384}, dtype, 1);
          context.use_reference = false;
          const mx::array y = linear(context, x, w, {.out_dtype = mx::float32});
          mx::eval(y);
          context.use_reference = true;
          const mx::array expected = linear(context, x, w, {.out_dtype = mx::float32});
          // The largest outputs are about 20; MLX's own sum over 384 terms errs by as much.
          ASSERT_TRUE(near(y, expected, {.abs = 2e-4f, .rel = 1e-5f}));
        }
        EXPECT_EQ(context.kernels->count("linear", int8_kernel()), 6);
      }
    }
  }
}

void expect_same_bits(int k, mx::Dtype dtype) {
  const int n = 2 * 40;
  for (const AffineFormat& format : formats()) {
    if (k % format.group_size != 0) continue;
    ASSERT_NO_FATAL_FAILURE(expect_bits_of_rows(
        n, k, dtype, format_name(format) + ", K " + std::to_string(k),
        [&](const Context& context, bool interleave) {
          return random_weight(context, n, k, format, dtype, interleave);
        },
        int8_kernel));
  }
}

// Where K ends inside a block, and where it does not: then few rows meet codes in registers. Both
// are more blocks than a kernel makes ready together.
TEST(Int8Linear, ARowHasTheSameBitsInAnyBatchAndOnEveryInstructionSet) {
  for (const mx::Dtype dtype : float_dtypes())
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(1216, dtype));
  ASSERT_NO_FATAL_FAILURE(expect_same_bits(640, mx::bfloat16));
}

// Against float64 with the exact weights: x is off by half a step of what shares its scale,
// max |x| / 254, and the sums add their own roundings. Of x as it is rounded, by these alone.
TEST(Int8Linear, IsWithinItsErrorBoundOfFloat64) {
  const int n = 48, k = 640, rows = 5;
  for (const AffineFormat& format : formats()) {
    if (format.scale_dtype == mx::float32) continue;
    SCOPED_TRACE(format_name(format));
    const Context context = make_context(2);
    const AffineSource s = affine_source(n, k, format, mx::float32, 9);
    const LinearWeight w = {.weight = pack_affine_matrix(context, {&s.rows, 1}, mx::bfloat16)};
    const mx::array x = random_array({rows, k}, mx::bfloat16, 1);
    const auto y = to_floats(linear(context, x, w, {.out_dtype = mx::float32}));
    const auto a = to_floats(x), b = to_floats(s.dense);
    const int group = static_cast<int>(columns_of_scale(format, k));
    const std::vector<double> rounded = rounded_to_int8(a, group);
    for (int t = 0; t < rows; ++t) {
      for (int j = 0; j < n; ++j) {
        double exact = 0, of_rounded = 0, bound = 1e-4;
        for (int g = 0; g < k; g += group) {
          double most = 0, weights = 0;
          for (int i = g; i < g + group; ++i) {
            exact += static_cast<double>(a[t * k + i]) * b[j * k + i];
            of_rounded += rounded[t * k + i] * b[j * k + i];
            most = std::max(most, std::abs(static_cast<double>(a[t * k + i])));
            weights += std::abs(b[j * k + i]);
          }
          bound += most / 254 * 1.001 * weights;
        }
        ASSERT_LE(std::abs(y[t * n + j] - exact), bound) << t << ", " << j;
        ASSERT_NEAR(y[t * n + j], of_rounded, 1e-4) << t << ", " << j;
      }
    }
  }
}

// The largest integers of both sides, in every place: partial sums in 16 or 32 bits must hold them.
TEST(Int8Linear, TheLargestProductsAreExact) {
  const int n = 48, k = 256;
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const AffineFormat& format : formats()) {
      if (format.scale_dtype != mx::bfloat16) continue;
      SCOPED_TRACE(isa + " " + format_name(format));
      const Context context = make_context(1);
      const int groups = k / static_cast<int>(format.group_size);
      AffineSource s = {.values = mx::full({n, k * format.bits / 32}, 0xFFFFFFFFu, mx::uint32),
                        .scales = mx::ones({n, groups}, mx::bfloat16),
                        .biases = mx::zeros({n, groups}, mx::bfloat16),
                        .dense = mx::array(0.0f),
                        .rows = {}};
      finish_source(s, n, k, format, mx::float32);
      const LinearWeight w = {.weight = pack_affine_matrix(context, {&s.rows, 1}, mx::bfloat16)};
      for (const int rows : {1, 2, 4, 9, 49}) {
        for (const float sign : {1.0f, -1.0f}) {
          const mx::array x = mx::full({rows, k}, sign * 127, mx::bfloat16);
          const float expected = sign * 127 * static_cast<float>(((1 << format.bits) - 1) * k);
          for (const float y : to_floats(linear(context, x, w, {.out_dtype = mx::float32})))
            ASSERT_EQ(y, expected);
        }
      }
    }
  }
}

TEST(Int8Linear, ZerosStayZeroAndNonFiniteRowsStayAlone) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    SCOPED_TRACE(isa);
    const Context context = make_context(1);
    const AffineFormat format = {
        .bits = 8, .group_size = 64, .scale_dtype = mx::bfloat16, .int8_activations = true};
    const LinearWeight w = random_weight(context, 32, 128, format, mx::bfloat16, false);
    for (const int rows : {3, 31, 50}) {  // the last two end in a tile that is not filled
      std::vector<float> values(static_cast<size_t>(rows) * 128, 0.0f);
      float* last = values.data() + (rows - 3) * 128;
      last[128 + 5] = INFINITY;
      last[2 * 128 + 7] = 1.0f;
      const mx::array x =
          mx::astype(mx::array(values.data(), {rows, 128}, mx::float32), mx::bfloat16);
      mx::eval(x);
      const auto y = to_floats(linear(context, x, w));
      const float* of_last = y.data() + (rows - 3) * 32;
      for (int i = 0; i < 32; ++i) {
        EXPECT_EQ(of_last[i], 0.0f);
        EXPECT_FALSE(std::isfinite(of_last[32 + i]));
        EXPECT_TRUE(std::isfinite(of_last[64 + i]));
      }
    }
  }
}

TEST(Int8Linear, TilesAreForManyRowsOrFullOnes) {
  const auto by_tiles = [](GgufFormat format, int64_t group, int64_t rows) {
    return int8_goes_by_tiles({.group_size = group, .gguf = format, .rows = rows});
  };
  for (const int64_t rows : {28, 32, 42, 48, 49, 50, 256}) {
    EXPECT_TRUE(by_tiles(GgufFormat::kNone, 64, rows)) << rows;
    EXPECT_TRUE(by_tiles(GgufFormat::kQ4_K, 32, rows)) << rows;
    EXPECT_EQ(by_tiles(GgufFormat::kQ8_0, 32, rows), rows >= 49) << rows;
    EXPECT_FALSE(by_tiles(GgufFormat::kQ6_K, 16, rows)) << rows;
  }
  for (const int64_t rows : {1, 8, 16, 17, 27, 33, 41})
    EXPECT_FALSE(by_tiles(GgufFormat::kNone, 64, rows)) << rows;
}

}  // namespace
}  // namespace quire::ops
