#include <cmath>
#include <cstring>

#include "ops/embedding/embedding.h"
#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/linear_test_util.h"
#include "ops/linear/pack/block_float_matrix.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

// OCP's definition of e4m3.
float value_of(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const double size =
      exponent ? std::ldexp(1 + mantissa / 8.0, exponent - 7) : std::ldexp(mantissa / 8.0, -6);
  return static_cast<float>(code & 0x80 ? -size : size);
}

// Any codes, with scales of each row and 128 columns, and the values that these stand for.
struct Source {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  mx::array dense;  // [N, K]: float32, rounded once
  int n, k;

  BlockFloatRows rows() const {
    return {.values = codes.data(),
            .scales = scales.data(),
            .n = n,
            .k = k,
            .format = BlockFloat::kFloat8};
  }
};

Source make_source(int n, int k, mx::Dtype dtype, float least, float most, uint32_t seed = 7) {
  const int groups = (k + 127) / 128;
  Source s = {.codes = std::vector<uint8_t>(static_cast<size_t>(n * k)),
              .scales = std::vector<float>(static_cast<size_t>(n * groups)),
              .dense = mx::array(0.0f),
              .n = n,
              .k = k};
  std::mt19937 generator(seed);
  for (uint8_t& code : s.codes) {
    code = static_cast<uint8_t>(generator());
    if ((code & 0x7F) == 0x7F) code ^= 1;  // NaN
  }
  std::uniform_real_distribution<float> scale(least, most);
  for (float& one : s.scales) one = generator() % 16 ? scale(generator) : -scale(generator);
  std::vector<float> values(s.codes.size());
  for (int row = 0; row < n; ++row)
    for (int at = 0; at < k; ++at) {
      const auto i = static_cast<size_t>(row * k + at);
      values[i] = value_of(s.codes[i]) * s.scales[static_cast<size_t>(row * groups + at / 128)];
    }
  s.dense = mx::astype(mx::array(values.data(), {n, k}, mx::float32), dtype);
  mx::eval(s.dense);
  return s;
}

PackedMatrix pack(const Context& context, const Source& s, mx::Dtype dtype,
                  bool interleave = false) {
  const BlockFloatRows rows = s.rows();
  return pack_block_float_matrix(context, {&rows, 1}, dtype, interleave);
}

// Scales of one byte need no rounding to bfloat16; these do. Columns that blocks do not fill, too.
TEST(Float8Linear, EqualsTheDenseLinearOfItsValues) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [n, k] :
           {std::pair(70, 128), {33, 416}, {112, 640}, {16, 176}, {24, 2080}, {48, 40}}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + std::to_string(n) + " x " +
                     std::to_string(k));
        const Context context = make_context(2);
        const Source s = make_source(n, k, dtype, 0.0002f, 0.01f);
        ASSERT_NO_FATAL_FAILURE(expect_bits_of_dense(context, {.weight = pack(context, s, dtype)},
                                                     {.weight = pack_dense(context, s.dense)},
                                                     product_kernel(dtype)));
      }
    }
  }
}

TEST(Float8Linear, NormResidualAndSiluAreThoseOfTheDenseLinear) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      SCOPED_TRACE(isa + " " + dtype_name(dtype));
      const Context context = make_context(2);
      const Source s = make_source(2 * 40, 224, dtype, 0.0002f, 0.01f);
      ASSERT_NO_FATAL_FAILURE(
          expect_fused_bits_of_dense(context,
                                     {.plain = {.weight = pack(context, s, dtype)},
                                      .gated = {.weight = pack(context, s, dtype, true)}},
                                     pack_both_orders(context, s.dense)));
    }
  }
}

// The ends of what scales may be, and sums of zeros, which keep the signs of the weights.
TEST(Float8Linear, EveryScaleAndZeroGivesTheBitsOfTheDenseWeight) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const float scale : {kLeastFloatScale, 0.0f, -0.0f, 1.0f, kMostFloatScale}) {
        Source s = make_source(96, 128, dtype, scale, scale);
        for (size_t row = 1; row < 96; row += 2)
          std::memset(s.codes.data() + row * 128, row % 4 == 1 ? 0x80 : 0, 128);
        std::vector<float> values(s.codes.size());
        for (size_t i = 0; i < values.size(); ++i)
          values[i] = value_of(s.codes[i]) * s.scales[i / 128];
        s.dense = mx::astype(mx::array(values.data(), {96, 128}, mx::float32), dtype);
        mx::eval(s.dense);
        const Context context = make_context(2), other = make_context(2);
        const LinearWeight w = {.weight = pack(context, s, dtype)};
        const LinearWeight dense = {.weight = pack_dense(other, s.dense)};
        for (const int rows : {1, 3, 40}) {
          const mx::array x = mx::full({rows, 128}, -0x1p-20f, dtype);
          ASSERT_TRUE(same_bits(linear(context, x, w, {.out_dtype = mx::float32}),
                                linear(other, x, dense, {.out_dtype = mx::float32})))
              << isa << " " << dtype_name(dtype) << ", scale " << scale << ", " << rows << " rows";
        }
      }
    }
  }
}

TEST(Float8Linear, RowsAndEmbeddingsAreItsValues) {
  const std::vector<int32_t> ids = {0, 36, 15, 16, 17, 0, 31, 32};
  const mx::array at(ids.data(), {8}, mx::int32);
  for (const mx::Dtype dtype : float_dtypes()) {
    SCOPED_TRACE(dtype_name(dtype));
    const Context context = make_context(2);
    const Source s = make_source(37, 200, dtype, 0.001f, 0.01f);
    const PackedMatrix packed = pack(context, s, dtype);
    const auto rows = dequantise_rows(context, packed);
    EXPECT_EQ(std::memcmp(rows.get(), s.dense.data<void>(), s.dense.nbytes()), 0);
    EXPECT_TRUE(same_bits(embedding(context, at, packed), mx::take(s.dense, at, 0)));
    EXPECT_TRUE(kernel_ran(context, "embedding", 1));
  }
}

// A byte a value, and four for 128 of them.
TEST(Float8Linear, NothingIsWidened) {
  const Context context = make_context(2);
  const PackedMatrix packed =
      pack(context, make_source(64, 512, mx::bfloat16, 0.001f, 0.01f), mx::bfloat16);
  EXPECT_EQ(packed.nbytes(), 64u * 512 + 64 * 4 * 4);
}

TEST(Float8Pack, RefusesWhatIsNoWeight) {
  const Context context = make_context(1);
  Source s = make_source(16, 128, mx::bfloat16, 0.5f, 1.0f);
  EXPECT_NO_THROW(pack(context, s, mx::bfloat16));
  for (const float bad : {NAN, INFINITY, 2 * kMostFloatScale, kLeastFloatScale / 2}) {
    Source other = s;
    other.scales[3] = bad;
    EXPECT_THROW(pack(context, other, mx::bfloat16), std::invalid_argument) << bad;
  }
  s.codes[77] = 0xFF;
  EXPECT_THROW(pack(context, s, mx::bfloat16), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
