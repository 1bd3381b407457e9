// Affine weights with zero points: w = (q - z) * scale.
#include <array>
#include <cmath>
#include <cstring>

#include "ops/embedding/embedding.h"
#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/int8/int8_test_util.h"
#include "ops/linear/linear_reference.h"
#include "ops/linear/linear_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// Any codes, scales of both signs and zero points over their whole range, and the exact values.
struct Source {
  std::vector<uint32_t> words;
  std::vector<uint16_t> scales;
  std::vector<uint8_t> zeros;
  std::vector<double> values;  // [N, K]
  std::vector<double> biases;  // [N, groups]: what a code of 0 means
  AffineRows rows;

  mx::array dense(mx::Dtype dtype) const {  // rounded once: float32 holds the values
    std::vector<float> floats(values.begin(), values.end());
    const mx::Shape shape = {static_cast<int>(rows.n), static_cast<int>(rows.k)};
    mx::array out = mx::astype(mx::array(floats.data(), shape, mx::float32), dtype);
    mx::eval(out);
    return out;
  }
};

std::shared_ptr<const Source> make_source(int n, int k, const AffineFormat& format,
                                          uint32_t seed = 7) {
  auto s = std::make_shared<Source>();
  std::mt19937 generator(seed);
  s->words.resize(static_cast<size_t>(n) * k * format.bits / 32);
  for (uint32_t& word : s->words) word = static_cast<uint32_t>(generator());
  const int groups = k / static_cast<int>(format.group_size);
  const float top = static_cast<float>((1 << format.bits) - 1);
  const mx::array scales = random_array({n, groups}, format.scale_dtype, seed + 1, 0.7f / top);
  s->scales.resize(static_cast<size_t>(n * groups));
  std::memcpy(s->scales.data(), scales.data<void>(), scales.nbytes());
  if (format.zeros == ZeroPoints::kBytes)
    for (int i = 0; i < n * groups; ++i)
      s->zeros.push_back(static_cast<uint8_t>(generator() % (1u << format.bits)));
  const auto wide = to_floats(scales);
  s->biases.resize(wide.size());
  for (int row = 0; row < n; ++row)
    for (int at = 0; at < k; ++at) {
      const size_t bit = (static_cast<size_t>(row) * k + at) * format.bits;
      uint64_t both = s->words[bit / 32];
      if (bit / 32 + 1 < s->words.size())
        both |= static_cast<uint64_t>(s->words[bit / 32 + 1]) << 32;
      const int q = static_cast<int>(both >> bit % 32 & ((1u << format.bits) - 1));
      const auto group = static_cast<size_t>(row * groups + at / format.group_size);
      const int zero = format.least_zero + (s->zeros.empty() ? 0 : s->zeros[group]);
      s->values.push_back(static_cast<double>(q - zero) * wide[group]);
      s->biases[group] = -static_cast<double>(zero) * wide[group];
    }
  s->rows = {.values = s->words.data(),
             .scales = s->scales.data(),
             .biases = s->zeros.empty() ? nullptr : s->zeros.data(),
             .n = n,
             .k = k,
             .format = format};
  return s;
}

LinearWeight pack(const Context& context, const Source& s, mx::Dtype dtype,
                  bool interleave = false) {
  return {.weight = pack_affine_matrix(context, {&s.rows, 1}, dtype, interleave)};
}

// Zero points as folders have them: of symmetric weights, and of others, also stored less one.
std::vector<AffineFormat> formats() {
  std::vector<AffineFormat> all;
  for (const int bits : {2, 3, 4, 8})
    for (const int64_t group : {32, 64, 128})
      for (const mx::Dtype dtype : {mx::float16, mx::bfloat16})
        for (const bool same : {false, true})
          all.push_back({.bits = bits,
                         .group_size = group,
                         .scale_dtype = dtype,
                         .zeros = same ? ZeroPoints::kSame : ZeroPoints::kBytes,
                         .least_zero = same        ? 1 << (bits - 1)
                                       : bits == 8 ? 1
                                                   : 0});
  return all;
}

std::string text(const std::string& isa, mx::Dtype dtype, const AffineFormat& f) {
  return isa + " " + dtype_name(dtype) + ", " + format_name(f) +
         (f.zeros == ZeroPoints::kSame ? ", one zero point" : ", zero points");
}

TEST(ZeroPoints, GiveTheBitsOfTheDenseLinearOfTheirValues) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const AffineFormat& format : formats()) {
        const int n = format.group_size == 64 ? 33 : 70, k = format.group_size == 32 ? 416 : 384;
        const Context context = make_context(2), other = make_context(2);
        const auto s = make_source(n, k, format);
        LinearWeight w = pack(context, *s, dtype);
        LinearWeight dense = {.weight = pack_dense(other, s->dense(dtype))};
        w.bias = dense.bias = random_array({n}, mx::float32, 3);
        for (const int rows : {1, 3, 16, 17, 32, 33, 70}) {
          const mx::array x = random_array({rows, k}, dtype, 1);
          ASSERT_TRUE(same_bits(linear(context, x, w, {.out_dtype = mx::float32}),
                                linear(other, x, dense, {.out_dtype = mx::float32})))
              << text(isa, dtype, format) << ", " << rows << " rows";
        }
        ASSERT_TRUE(kernel_ran(context, "linear", 7, product_kernel(dtype)));
      }
    }
  }
}

// The edges of kernels' tiles and slices: every small number of rows, odd numbers of panels, and K
// that ends inside a block.
TEST(ZeroPoints, EveryNumberOfRowsAndEdgeGivesTheBitsOfTheDenseLinear) {
  const AffineFormat formats[] = {
      {.bits = 4, .group_size = 32, .scale_dtype = mx::float16, .zeros = ZeroPoints::kBytes},
      {.bits = 8, .group_size = 32, .scale_dtype = mx::bfloat16, .zeros = ZeroPoints::kBytes},
      {.bits = 8,
       .group_size = 32,
       .scale_dtype = mx::float16,
       .zeros = ZeroPoints::kSame,
       .least_zero = 128},
      {.bits = 3, .group_size = 32, .scale_dtype = mx::float16, .zeros = ZeroPoints::kBytes},
      {.bits = 2,
       .group_size = 32,
       .scale_dtype = mx::bfloat16,
       .zeros = ZeroPoints::kSame,
       .least_zero = 2}};
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const AffineFormat& format : formats)
        for (const auto& [n, k] : {std::pair(16, 32), {100, 416}, {33, 352}}) {
          SCOPED_TRACE(text(isa, dtype, format) + ", " + std::to_string(n) + " x " +
                       std::to_string(k));
          const Context context = make_context(2);
          const auto s = make_source(n, k, format);
          ASSERT_NO_FATAL_FAILURE(expect_bits_of_dense(
              context, pack(context, *s, dtype), {.weight = pack_dense(context, s->dense(dtype))},
              product_kernel(dtype)));
        }
  }
}

// What remains is the rounding of the weights to the model's dtype, at most u |w| each, and the
// sums' own error, bounded as for dense weights.
TEST(ZeroPoints, AreWithinTheirErrorBoundOfFloat64) {
  const int n = 48, k = 512, rows = 5;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const AffineFormat& format : formats()) {
      for (const mx::Dtype dtype : float_dtypes()) {
        SCOPED_TRACE(text(isa, dtype, format));
        const Context context = make_context(2);
        const auto s = make_source(n, k, format, 9);
        const mx::array x = random_array({rows, k}, dtype, 1);
        const auto y =
            to_floats(linear(context, x, pack(context, *s, dtype), {.out_dtype = mx::float32}));
        EXPECT_TRUE(kernel_ran(context, "linear", 1, product_kernel(dtype)));
        const auto a = to_floats(x);
        const double u = unit_roundoff(mx::float32);
        const double u_w = dtype == mx::float32 ? u : unit_roundoff(dtype) + u;
        const int num_sums = 16 + 3 + k / 32;
        for (int t = 0; t < rows; ++t)
          for (int j = 0; j < n; ++j) {
            double exact = 0, magnitude = 0;
            for (int i = 0; i < k; ++i) {
              const double product = a[t * k + i] * s->values[static_cast<size_t>(j * k + i)];
              exact += product;
              magnitude += std::abs(product);
            }
            ASSERT_LE(std::abs(y[t * n + j] - exact),
                      (u_w + 1.01 * u * num_sums) * magnitude + 1e-6)
                << t << ", " << j;
          }
      }
    }
  }
}

TEST(ZeroPoints, NormResidualAndSiluAreThoseOfTheDenseLinear) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const AffineFormat& format : formats()) {
        if (format.group_size != 32) continue;
        SCOPED_TRACE(text(isa, dtype, format));
        const Context context = make_context(2);
        const auto s = make_source(2 * 40, 224, format);
        ASSERT_NO_FATAL_FAILURE(expect_fused_bits_of_dense(
            context, {.plain = pack(context, *s, dtype), .gated = pack(context, *s, dtype, true)},
            pack_both_orders(context, s->dense(dtype))));
      }
  }
}

TEST(ZeroPoints, RowsDoNotDependOnTheBatch) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const AffineFormat& format : formats()) {
      if (format.scale_dtype != mx::float16) continue;
      SCOPED_TRACE(text(isa, mx::bfloat16, format));
      const Context context = make_context(3);
      ASSERT_NO_FATAL_FAILURE(expect_same_rows_in_any_batch(
          context, pack(context, *make_source(2 * 40, 384, format), mx::bfloat16)));
    }
  }
}

TEST(ZeroPoints, TheLayoutHoldsTheirValues) {
  const std::vector<int32_t> ids = {0, 36, 15, 16, 17, 0, 31, 32};
  const mx::array at(ids.data(), {8}, mx::int32);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const AffineFormat& format : formats())
      for (const mx::Dtype dtype : float_dtypes()) {
        SCOPED_TRACE(text(isa, dtype, format));
        const Context context = make_context(2);
        const auto s = make_source(37, 384, format);
        const mx::array dense = s->dense(dtype);
        const PackedMatrix packed = pack(context, *s, dtype).weight;
        if (!on_cuda()) {
          EXPECT_TRUE(mx::array_equal(unpack_matrix(packed), dense).item<bool>());
        }
        const auto rows = dequantise_rows(context, packed);
        const mx::array found(reinterpret_cast<const uint8_t*>(rows.get()),
                              {static_cast<int>(dense.nbytes())}, mx::uint8);
        EXPECT_TRUE(mx::array_equal(mx::view(found, dtype), mx::reshape(dense, {-1})).item<bool>());
        EXPECT_TRUE(
            mx::array_equal(embedding(context, at, packed), mx::take(dense, at, 0)).item<bool>());
      }
  }
}

// Parts whose zero points are of different kinds, or that have biases, meet in float32 biases.
TEST(ZeroPoints, PartsOfDifferentKindsAreStackedExactly) {
  const AffineFormat bytes = {.bits = 4,
                              .group_size = 64,
                              .scale_dtype = mx::float16,
                              .zeros = ZeroPoints::kBytes},
                     same = {.bits = 4,
                             .group_size = 128,
                             .scale_dtype = mx::float16,
                             .zeros = ZeroPoints::kSame,
                             .least_zero = 8},
                     wide = {.bits = 8,
                             .group_size = 32,
                             .scale_dtype = mx::bfloat16,
                             .zeros = ZeroPoints::kBytes,
                             .least_zero = 1};
  for (const auto& kinds : {std::vector{bytes, same}, {same, wide, bytes}, {bytes, bytes}})
    for (const mx::Dtype dtype : float_dtypes()) {
      const Context context = make_context(2), other = make_context(2);
      std::vector<std::shared_ptr<const Source>> sources;
      std::vector<AffineRows> rows;
      std::vector<mx::array> dense;
      for (size_t i = 0; i < kinds.size(); ++i)
        sources.push_back(make_source(24, 256, kinds[i], static_cast<uint32_t>(20 + i)));
      const AffineSource biased = affine_source(24, 256, {4, 32, mx::bfloat16}, dtype, 30);
      for (const auto& s : sources) rows.push_back(s->rows), dense.push_back(s->dense(dtype));
      rows.push_back(biased.rows), dense.push_back(biased.dense);
      const LinearWeight w = {.weight = pack_affine_matrix(context, rows, dtype)};
      const LinearWeight whole = {.weight = pack_dense(other, mx::concatenate(dense, 0))};
      const mx::array x = random_array({5, 256}, dtype, 1);
      EXPECT_TRUE(same_bits(linear(context, x, w), linear(other, x, whole)));
    }
}

// 16 bits for a scale, a byte for a zero point, and nothing for one that all groups share.
TEST(ZeroPoints, NothingIsWidened) {
  const Context context = make_context(2);
  for (const AffineFormat& format : formats()) {
    const int bits = on_cuda() ? packed_bits(format.bits) : format.bits;
    const auto groups = static_cast<size_t>(512 / format.group_size);
    EXPECT_EQ(pack(context, *make_source(64, 512, format), mx::bfloat16).weight.nbytes(),
              64u * 512 * static_cast<size_t>(bits) / 8 +
                  64 * groups * (format.zeros == ZeroPoints::kSame ? 2 : 3));
  }
}

// Outputs of rows x in 8 bits against float64: Int8LinearGguf's bound for codes and minima.
void expect_near_float64(const Context& context, const Source& s, const mx::array& x) {
  const int rows = x.shape(0), n = static_cast<int>(s.rows.n), k = static_cast<int>(s.rows.k);
  const int group = static_cast<int>(s.rows.format.group_size);
  const auto y =
      to_floats(linear(context, x, pack(context, s, x.dtype()), {.out_dtype = mx::float32}));
  const std::vector<double> a = rounded_to_int8(to_floats(x), s.rows.format.per_token ? k : group);
  const int sums = 4 * (k / group) + 4;
  const double per_sum = unit_roundoff(mx::float32) * sums * 1.01;
  for (int t = 0; t < rows; ++t) {
    for (int j = 0; j < n; ++j) {
      double exact = 0, sizes = 0;
      for (int i = 0; i < k; ++i) {
        const double value = s.values[static_cast<size_t>(j * k + i)];
        const double bias = s.biases[static_cast<size_t>(j * (k / group) + i / group)];
        exact += a[t * k + i] * value;
        sizes += std::abs(a[t * k + i]) * (std::abs(value - bias) + std::abs(bias));
      }
      ASSERT_LE(std::abs(y[t * n + j] - exact), per_sum * sizes + 1e-30) << t << ", " << j;
    }
  }
}

// Half of formats(): kernels of 8-bit activations read scales and zero points apart. Of those, one
// zero point for all goes with a scale for each group of x, or with one for the row.
std::vector<AffineFormat> int8_formats() {
  std::vector<AffineFormat> all;
  for (AffineFormat format : formats()) {
    format.int8_activations = true;
    if ((format.scale_dtype == mx::float16) != (format.zeros == ZeroPoints::kBytes)) continue;
    all.push_back(format);
    if (format.zeros != ZeroPoints::kSame) continue;
    format.per_token = true;
    all.push_back(format);
  }
  return all;
}

TEST(ZeroPoints, AreWithinTheErrorBoundOfActivationsOf8Bits) {
  if (on_gpu()) GTEST_SKIP() << "the CPU's";
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const AffineFormat& format : int8_formats()) {
      const Context context = make_context(2);
      const auto s = make_source(70, 384, format, 9);
      for (const int rows : {1, 5, 17, 33, 50}) {
        SCOPED_TRACE(text(isa, mx::bfloat16, format) + ", " + std::to_string(rows) + " rows");
        ASSERT_NO_FATAL_FAILURE(
            expect_near_float64(context, *s, random_array({rows, 384}, mx::bfloat16, 1)));
      }
      ASSERT_TRUE(kernel_ran(context, "linear", 5, int8_kernel()));
    }
  }
}

// Where K ends inside a block, and where it does not: then few rows meet codes in registers.
TEST(ZeroPoints, RowsOf8BitsHaveTheSameBitsInAnyBatchAndOnEveryInstructionSet) {
  if (on_gpu()) GTEST_SKIP() << "the CPU's";
  const int n = 2 * 40;
  for (const int k : {448, 640}) {
    for (const AffineFormat& format : int8_formats()) {
      if (k % format.group_size != 0) continue;
      const auto s = make_source(n, k, format);
      ASSERT_NO_FATAL_FAILURE(expect_bits_of_rows(
          n, k, mx::bfloat16, text("", mx::bfloat16, format) + ", K " + std::to_string(k),
          [&](const Context& context, bool interleave) {
            return pack(context, *s, mx::bfloat16, interleave);
          },
          int8_kernel));
    }
  }
}

TEST(ZeroPoints, GoWithScalesOf16Bits) {
  const Context context = make_context(1);
  const AffineFormat format = {
      .bits = 4, .group_size = 64, .scale_dtype = mx::float16, .zeros = ZeroPoints::kBytes};
  const auto s = make_source(16, 128, format);
  AffineRows rows = s->rows;
  rows.format.scale_dtype = mx::float32;
  EXPECT_THROW(pack_affine_matrix(context, {&rows, 1}, mx::bfloat16), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
