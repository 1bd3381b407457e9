// 4-bit floats of folders that were made for GPUs: NVFP4 with numbers for a whole matrix, and nf4.
#include <cmath>
#include <cstring>

#include "ops/embedding/embedding.h"
#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/block_float/float4_test_util.h"
#include "ops/linear/block_float/float4_vectors.h"
#include "ops/linear/linear_reference.h"
#include "ops/linear/linear_test_util.h"
#include "ops/linear/pack/block_float_matrix.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr BlockFloat kFormats[] = {BlockFloat::kScaledNvfp4, BlockFloat::kNf4,
                                   BlockFloat::kNestedNf4};

// Any codes and scales, and the values that these stand for.
struct Source {
  BlockFloat format;
  int n, k;
  Float4Codes codes;
  std::vector<uint8_t> scales;
  std::vector<uint16_t> pairs;
  std::shared_ptr<std::vector<float>> nested;
  float multiplier = 1, divisor = 1;

  BlockFloatRows rows() const {
    return {.values = codes.bytes.data(),
            .scales = scales.data(),
            .n = n,
            .k = k,
            .format = format,
            .multiplier = multiplier,
            .divisor = divisor,
            .pairs = pairs.data(),
            .nested = nested};
  }
  float scale(int row, int at) const {  // each step rounded to float32
    if (format == BlockFloat::kScaledNvfp4) {
      const uint8_t byte = scales[static_cast<size_t>(row * (k / 16) + at / 16)];
      const float product = static_cast<float>(e4m3(byte)) * multiplier;
      return product / divisor;
    }
    const auto index = static_cast<size_t>(row * (k / 64) + at / 64);
    if (format == BlockFloat::kNf4) {
      float wide;
      std::memcpy(&wide, scales.data() + 4 * index, sizeof(wide));
      return wide;
    }
    const size_t pair = 256 + 2 * pairs[static_cast<size_t>(row * (k / 128) + at / 128)];
    const float product = (*nested)[scales[index]] * (*nested)[pair];
    return product + (*nested)[pair + 1];
  }
  float value(int row, int at) const {
    const int code = codes.at(row, at);
    const float table =
        format == BlockFloat::kScaledNvfp4 ? static_cast<float>(e2m1(code)) : kNf4Values[code];
    return table * scale(row, at);
  }
  mx::array dense(mx::Dtype dtype) const {  // rounded once
    std::vector<float> values;
    for (int row = 0; row < n; ++row)
      for (int at = 0; at < k; ++at) values.push_back(value(row, at));
    mx::array out = mx::astype(mx::array(values.data(), {n, k}, mx::float32), dtype);
    mx::eval(out);
    return out;
  }
};

Source make_source(int n, int k, BlockFloat format, uint32_t seed = 7) {
  std::mt19937 generator(seed);
  Source s = {.format = format,
              .n = n,
              .k = k,
              .codes = Float4Codes(n, k, generator),
              .scales = {},
              .pairs = {},
              .nested = {}};
  std::uniform_real_distribution<float> absmax(0.01f, 0.3f);
  if (format == BlockFloat::kScaledNvfp4) {
    for (int i = 0; i < n * k / 16; ++i)
      s.scales.push_back(static_cast<uint8_t>(generator() % 0x7F));
    (seed % 2 ? s.divisor : s.multiplier) = seed % 2 ? 7321.7f : 0.00011f;
  } else if (format == BlockFloat::kNf4) {
    s.scales.resize(static_cast<size_t>(n * k / 64) * 4);
    for (int i = 0; i < n * k / 64; ++i) {
      const float scale = generator() % 16 ? absmax(generator) : 0.0f;
      std::memcpy(s.scales.data() + 4 * i, &scale, sizeof(scale));
    }
  } else {
    for (int i = 0; i < n * k / 64; ++i) s.scales.push_back(static_cast<uint8_t>(generator()));
    s.nested = std::make_shared<std::vector<float>>();
    for (int i = 0; i < 256; ++i) s.nested->push_back((static_cast<float>(i) - 127.0f) / 128.0f);
    const int num_pairs = 11;
    for (int i = 0; i < num_pairs; ++i) {
      s.nested->push_back(absmax(generator));
      s.nested->push_back(0.31f + absmax(generator));
    }
    for (int i = 0; i < n * k / 128; ++i)
      s.pairs.push_back(static_cast<uint16_t>(generator() % num_pairs));
  }
  return s;
}

LinearWeight pack(const Context& context, const Source& s, mx::Dtype dtype,
                  bool interleave = false) {
  const BlockFloatRows rows = s.rows();
  return {.weight = pack_block_float_matrix(context, {&rows, 1}, dtype, interleave)};
}

std::string text(const std::string& isa, mx::Dtype dtype, BlockFloat format) {
  return isa + " " + dtype_name(dtype) + ", " + block_float_format(format).name + " " +
         std::to_string(static_cast<int>(format));
}

std::vector<uint8_t> bytes_of(std::string_view digits) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i < digits.size(); i += 2)
    out.push_back(static_cast<uint8_t>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16)));
  return out;
}
float float_of(std::string_view digits) {
  const auto bytes = bytes_of(digits);
  float out;
  std::memcpy(&out, bytes.data(), sizeof(out));
  return out;
}

// bitsandbytes stores the high nibble first, which a reader turns.
TEST(Float4Linear, HasTheValuesOfTheLibraries) {
  const Context context = make_context(1, make_cpu_device());
  const auto expect_values = [&](BlockFloatRows rows, const Float4Vector& v, mx::Dtype dtype) {
    auto codes = bytes_of(v.codes);
    const auto scales = bytes_of(v.scales), values = bytes_of(v.values);
    rows.n = 1;
    rows.k = static_cast<int64_t>(2 * codes.size());
    if (rows.format == BlockFloat::kNf4)
      for (uint8_t& two : codes) two = static_cast<uint8_t>(two >> 4 | two << 4);
    rows.values = codes.data();
    rows.scales = scales.data();
    const auto found =
        to_floats(unpack_matrix(pack_block_float_matrix(context, {&rows, 1}, dtype)));
    ASSERT_EQ(found.size() * sizeof(float), values.size());
    for (size_t i = 0; i < found.size(); ++i) {
      float expected;
      std::memcpy(&expected, values.data() + 4 * i, sizeof(expected));
      ASSERT_EQ(found[i], expected) << i;
    }
  };
  expect_values(
      {.format = BlockFloat::kScaledNvfp4, .divisor = float_of(kCompressedNvfp4.of_matrix)},
      kCompressedNvfp4, mx::bfloat16);
  expect_values(
      {.format = BlockFloat::kScaledNvfp4, .multiplier = float_of(kModeloptNvfp4.of_matrix)},
      kModeloptNvfp4, mx::float32);
  expect_values({.format = BlockFloat::kNf4}, kBitsandbytesNf4, mx::float32);
}

TEST(Float4Linear, EqualsTheDenseLinearOfItsValues) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const BlockFloat format : kFormats)
        for (const auto& [n, k] :
             {std::pair(70, 128), {33, 384}, {112, 640}, {24, 2048}, {48, 192}}) {
          if (format == BlockFloat::kNestedNf4 && k % 128 != 0) continue;
          SCOPED_TRACE(text(isa, dtype, format) + ", " + std::to_string(n) + " x " +
                       std::to_string(k));
          const Context context = make_context(2);
          const Source s = make_source(n, k, format, static_cast<uint32_t>(n));
          ASSERT_NO_FATAL_FAILURE(expect_bits_of_dense(
              context, pack(context, s, dtype), {.weight = pack_dense(context, s.dense(dtype))},
              product_kernel(dtype)));
        }
  }
}

// What remains is two roundings of scales at most, that of values to the model's dtype, and the
// sums' own error, bounded as for dense weights.
TEST(Float4Linear, IsWithinItsErrorBoundOfFloat64) {
  const int n = 48, k = 512, rows = 5;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const BlockFloat format : kFormats) {
        SCOPED_TRACE(text(isa, dtype, format));
        const Context context = make_context(2);
        const Source s = make_source(n, k, format, 9);
        const mx::array x = random_array({rows, k}, dtype, 1);
        const auto y =
            to_floats(linear(context, x, pack(context, s, dtype), {.out_dtype = mx::float32}));
        EXPECT_TRUE(kernel_ran(context, "linear", 1, product_kernel(dtype)));
        const auto a = to_floats(x);
        const double u = unit_roundoff(mx::float32);
        const double u_w = dtype == mx::float32 ? u : unit_roundoff(dtype) + u;
        const int num_sums = 16 + 3 + k / 32;
        for (int t = 0; t < rows; ++t)
          for (int j = 0; j < n; ++j) {
            double exact = 0, magnitude = 0;
            for (int i = 0; i < k; ++i) {
              const double product = static_cast<double>(a[t * k + i]) * s.value(j, i);
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

TEST(Float4Linear, NormResidualAndSiluAreThoseOfTheDenseLinear) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const BlockFloat format : kFormats) {
        SCOPED_TRACE(text(isa, dtype, format));
        const Context context = make_context(2);
        const Source s = make_source(2 * 40, 256, format);
        ASSERT_NO_FATAL_FAILURE(expect_fused_bits_of_dense(
            context, {.plain = pack(context, s, dtype), .gated = pack(context, s, dtype, true)},
            pack_both_orders(context, s.dense(dtype))));
      }
  }
}

TEST(Float4Linear, RowsDoNotDependOnTheBatch) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const BlockFloat format : kFormats) {
      SCOPED_TRACE(text(isa, mx::bfloat16, format));
      const Context context = make_context(3);
      ASSERT_NO_FATAL_FAILURE(expect_same_rows_in_any_batch(
          context, pack(context, make_source(2 * 40, 384, format), mx::bfloat16)));
    }
  }
}

TEST(Float4Linear, RowsAndEmbeddingsAreItsValues) {
  const std::vector<int32_t> ids = {0, 36, 15, 16, 17, 0, 31, 32};
  const mx::array at(ids.data(), {8}, mx::int32);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes())
      for (const BlockFloat format : kFormats) {
        SCOPED_TRACE(text(isa, dtype, format));
        const Context context = make_context(2);
        const Source s = make_source(37, 256, format);
        const mx::array dense = s.dense(dtype);
        const PackedMatrix packed = pack(context, s, dtype).weight;
        if (!on_cuda()) {
          EXPECT_TRUE(same_bits(unpack_matrix(packed), dense));
        }
        const auto rows = dequantise_rows(context, packed);
        EXPECT_EQ(std::memcmp(rows.get(), dense.data<void>(), dense.nbytes()), 0);
        EXPECT_TRUE(same_bits(embedding(context, at, packed), mx::take(dense, at, 0)));
        EXPECT_TRUE(kernel_ran(context, "embedding", 1));
      }
  }
}

// Parts with numbers of their own, as q, k and v have them.
TEST(Float4Linear, PartsKeepTheirNumbers) {
  const int k = 256;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const BlockFloat format : kFormats) {
      const Context context = make_context(2), other = make_context(2);
      const Source a = make_source(48, k, format, 1), b = make_source(21, k, format, 2);
      const BlockFloatRows parts[] = {a.rows(), b.rows()};
      EXPECT_TRUE(go_together(parts, /*interleave=*/false));
      const LinearWeight w = {.weight = pack_block_float_matrix(context, parts, mx::bfloat16)};
      const LinearWeight dense = {
          .weight = pack_dense(other,
                               mx::concatenate({a.dense(mx::bfloat16), b.dense(mx::bfloat16)}, 0))};
      for (const int rows : {1, 5, 40}) {
        const mx::array x = random_array({rows, k}, mx::bfloat16, 4);
        ASSERT_TRUE(same_bits(linear(context, x, w), linear(other, x, dense)))
            << text(isa, mx::bfloat16, format) << ", " << rows << " rows";
      }
    }
  }
}

TEST(Float4Linear, PartsThatDoNotGoTogetherAreTold) {
  const Context context = make_context(1);
  const Source a = make_source(24, 128, BlockFloat::kScaledNvfp4, 1),
               b = make_source(24, 128, BlockFloat::kScaledNvfp4, 2);
  const BlockFloatRows parts[] = {a.rows(), b.rows()};
  EXPECT_FALSE(go_together(parts, /*interleave=*/false));  // they would meet within a panel
  EXPECT_TRUE(go_together(parts, /*interleave=*/true));
  EXPECT_THROW(pack_block_float_matrix(context, parts, mx::bfloat16), std::invalid_argument);
  const Source c = make_source(16, 128, BlockFloat::kNestedNf4, 1);
  Source d = make_source(16, 128, BlockFloat::kNestedNf4, 2);
  const BlockFloatRows same[] = {c.rows(), d.rows()};
  EXPECT_TRUE(go_together(same, /*interleave=*/false));
  // Rows of one tensor have its pairs once.
  Source many = c;
  many.nested = std::make_shared<std::vector<float>>(*c.nested);
  many.nested->resize(256 + 2 * kMostNestedPairs);
  const BlockFloatRows halves[] = {many.rows(), many.rows()}, more[] = {many.rows(), d.rows()};
  EXPECT_TRUE(go_together(halves, /*interleave=*/false));
  EXPECT_FALSE(go_together(more, /*interleave=*/false));
  d.nested->front() += 1;  // another map
  EXPECT_FALSE(go_together(same, /*interleave=*/false));
}

// Half a byte a value and the scales, and beside 2048 values of NVFP4 16 bytes; beside 128 of
// nested nf4 two.
TEST(Float4Linear, NothingIsWidened) {
  if (on_cuda()) GTEST_SKIP() << "nested scales become float32 there";
  const Context context = make_context(2);
  const auto bytes = [&](BlockFloat format) {
    return pack(context, make_source(64, 512, format), mx::bfloat16).weight.nbytes();
  };
  constexpr size_t kValues = 64 * 512;
  EXPECT_EQ(bytes(BlockFloat::kScaledNvfp4), kValues / 2 + kValues / 16 + kValues / 2048 * 16);
  EXPECT_EQ(bytes(BlockFloat::kNf4), kValues / 2 + kValues / 64 * 4);
  EXPECT_EQ(bytes(BlockFloat::kNestedNf4), kValues / 2 + kValues / 64 + kValues / 128 * 2);
}

TEST(Float4Pack, RefusesWhatIsNoScale) {
  const Context context = make_context(1);
  const auto refused = [&](const Source& s) {
    EXPECT_THROW(pack(context, s, mx::bfloat16), std::invalid_argument);
  };
  for (const float bad : {NAN, INFINITY, 0.0f, -1.0f, 2 * kMostFloatScale}) {
    Source s = make_source(16, 128, BlockFloat::kScaledNvfp4);
    s.divisor = bad;
    refused(s);
    s.divisor = 1;
    s.multiplier = bad;
    refused(s);
  }
  Source nan = make_source(16, 128, BlockFloat::kScaledNvfp4);
  nan.scales[3] = 0x7F;
  refused(nan);
  for (const float bad : {NAN, INFINITY, kLeastFloatScale / 2}) {
    Source s = make_source(16, 128, BlockFloat::kNf4);
    std::memcpy(s.scales.data() + 4, &bad, sizeof(bad));
    refused(s);
    Source nested = make_source(16, 128, BlockFloat::kNestedNf4);
    for (size_t i = 256; i < nested.nested->size(); ++i) (*nested.nested)[i] = bad;
    refused(nested);
  }
}

}  // namespace
}  // namespace quire::ops
