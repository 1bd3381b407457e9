// GGUF's nvfp4 with the number that each matrix is multiplied by.
#include <cmath>

#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/gguf/gguf_test_util.h"
#include "ops/linear/linear_test_util.h"
#include "ops/linear/pack/affine_matrix.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

constexpr int kColumns = 192;  // blocks of 64, the last one in half a block of the layout

struct Matrix {
  std::shared_ptr<const GgufSource> source;
  float multiplier;

  GgufRows rows() const {
    GgufRows rows = source->rows;
    rows.multiplier = multiplier;
    return rows;
  }
  // The formula of block_float.h: (e4m3 * multiplier) * code, each product rounded to float32. The
  // reference's value is e4m3 * code without rounding, so the code is what divides it by e4m3.
  mx::array dense(mx::Dtype dtype) const {
    std::vector<float> values(source->values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const uint8_t byte = source->bytes[i / 64 * 36 + i % 64 / 16];
      const float scale = byte == 0x7F ? 0.0f
                          : byte < 8   ? std::ldexp(static_cast<float>(byte), -9)
                                     : std::ldexp(static_cast<float>(8 + byte % 8), byte / 8 - 10);
      const float code = scale == 0 ? 0.0f : source->values[i] / scale;
      values[i] = scale * multiplier * code;
    }
    const mx::array wide(values.data(), {static_cast<int>(source->rows.n), kColumns}, mx::float32);
    mx::array rounded = mx::astype(wide, dtype);
    mx::eval(rounded);
    return rounded;
  }
};

Matrix make_matrix(int n, float multiplier, uint32_t seed) {
  return {gguf_source(n, kColumns, GgufFormat::kNvfp4, seed), multiplier};
}

// On the numbers of rows that kernels differ in.
void expect_products(const Context& context, const PackedMatrix& packed, const mx::array& dense) {
  const LinearWeight w = {.weight = packed}, plain = {.weight = pack_dense(context, dense)};
  for (const int rows : {1, 5, 40}) {
    const mx::array x = random_array({rows, kColumns}, dense.dtype(), 4);
    ASSERT_TRUE(same_bits(linear(context, x, w), linear(context, x, plain))) << rows << " rows";
  }
}

// Neighbours within a panel, at its edge, and of other formats; q, k and v have numbers of their
// own.
TEST(GgufNvfp4, PartsHaveNumbersOfTheirOwn) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const int edge : {24, 32}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + std::to_string(edge));
        const Context context = make_context(2);
        const Matrix a = make_matrix(edge, 0.0123f, 1), b = make_matrix(40, 3.7e-3f, 2),
                     c = make_matrix(16, 1.0f, 3);
        const GgufRows parts[] = {a.rows(), b.rows(), c.rows()};
        const mx::array dense =
            mx::contiguous(mx::concatenate({a.dense(dtype), b.dense(dtype), c.dense(dtype)}, 0));
        mx::eval(dense);
        ASSERT_NO_FATAL_FAILURE(
            expect_products(context, pack_gguf_matrix(context, parts, dtype), dense));
      }
    }
  }
}

TEST(GgufNvfp4, GateAndUpHaveNumbersOfTheirOwn) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    SCOPED_TRACE(isa);
    const Context context = make_context(2);
    const Matrix gate = make_matrix(24, 0.0123f, 1), up = make_matrix(24, 3.7e-3f, 2);
    const GgufRows parts[] = {gate.rows(), up.rows()};
    const mx::array dense =
        mx::contiguous(mx::concatenate({gate.dense(mx::bfloat16), up.dense(mx::bfloat16)}, 0));
    mx::eval(dense);
    const RowMatrix rows = {
        .data = dense.data<void>(), .n = 48, .k = kColumns, .dtype = mx::bfloat16};
    const LinearWeight packed = {
        .weight = pack_gguf_matrix(context, parts, mx::bfloat16, /*interleave=*/true)};
    const LinearWeight plain = {
        .weight = pack_matrix(context, {&rows, 1}, mx::bfloat16, /*interleave=*/true)};
    const LinearOptions options = {.gate = Gate{}};
    for (const int count : {1, 5, 40}) {
      const mx::array x = random_array({count, kColumns}, mx::bfloat16, 4);
      ASSERT_TRUE(
          same_bits(linear(context, x, packed, options), linear(context, x, plain, options)))
          << count << " rows";
    }
  }
}

TEST(GgufNvfp4, RefusesWhatIsNoScale) {
  const Context context = make_context(1);
  const auto refusal = [&](const GgufRows& rows) -> std::string {
    try {
      pack_gguf_matrix(context, {&rows, 1}, mx::bfloat16);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  const Matrix good = make_matrix(16, 1.0f, 1);
  EXPECT_EQ(refusal(good.rows()), "");
  for (const float multiplier : {0.0f, -1.0f, 0x1p81f, 0x1p-81f, std::nanf("")})
    EXPECT_NE(refusal(Matrix{good.source, multiplier}.rows()).find("nvfp4"), std::string::npos)
        << multiplier;
  // A sign: llama.cpp's kernels do not agree on what it means.
  for (const uint8_t byte : {0x80, 0xB8, 0xFF}) {
    std::vector<uint8_t> bytes = good.source->bytes;
    bytes[bytes.size() - 36 + 2] = byte;
    GgufRows rows = good.rows();
    rows.data = bytes.data();
    EXPECT_NE(refusal(rows).find("nvfp4"), std::string::npos) << static_cast<int>(byte);
  }
}

}  // namespace
}  // namespace quire::ops
