// GGUF's formats times activations of 8 bits; those of e2m1 as block floats.
#include <cmath>

#include "ops/linear/gguf/gguf_test_util.h"
#include "ops/linear/int8/int8_test_util.h"
#include "ops/linear/linear_test_util.h"
#include "ops/linear/pack/affine_matrix.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

std::string text(const std::string& isa, GgufFormat format) {
  return isa + " " + gguf_block(format).name;
}

PackedMatrix pack(const Context& context, const GgufSource& s, mx::Dtype dtype,
                  bool interleave = false) {
  GgufRows rows = s.rows;
  rows.int8_activations = true;
  return pack_gguf_matrix(context, {&rows, 1}, dtype, interleave);
}

// The exact values of a source, as what a code and its scale give and what a minimum adds.
struct ExactValues {
  std::vector<float> codes, minima;
};

// The formula's values with one of its float16 scales set to 0.
std::vector<float> values_without(const GgufSource& s, size_t scale) {
  const GgufBlock block = gguf_block(s.rows.format);
  std::vector<uint8_t> bytes = s.bytes;
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(block.bytes))
    std::memset(&bytes[at + static_cast<size_t>(gguf_half_places(s.rows.format)[scale])], 0, 2);
  std::vector<float> values(s.values.size());
  const int64_t row_bytes = gguf_row_bytes(s.rows.format, s.rows.k);
  for (int64_t row = 0; row < s.rows.n; ++row)
    gguf_reference(s.rows.format, bytes.data() + row * row_bytes, s.rows.k,
                   values.data() + row * s.rows.k);
  return values;
}

ExactValues exact_values(const GgufSource& s) {
  if (gguf_half_places(s.rows.format).size() < 2)
    return {.codes = s.values, .minima = std::vector<float>(s.values.size())};
  return {.codes = values_without(s, 1), .minima = values_without(s, 0)};
}

// Outputs of rows x against float64. A group adds two products, each of a factor that was rounded
// once, to a sum: without fused multiply-adds four more roundings, of values that are at most the
// sum of all sizes.
void expect_near_float64(const Context& context, const GgufSource& s, const mx::array& x) {
  const int rows = x.shape(0), n = static_cast<int>(s.rows.n), k = static_cast<int>(s.rows.k);
  const LinearWeight w = {.weight = pack(context, s, x.dtype())};
  const auto y = to_floats(linear(context, x, w, {.out_dtype = mx::float32}));
  const ExactValues values = exact_values(s);
  const int64_t group = quantised_layout(w.weight).group_size;
  const std::vector<double> a = rounded_to_int8(to_floats(x), group);
  const int64_t num_groups = k / group;
  const double per_sum =
      unit_roundoff(mx::float32) * static_cast<double>(4 * num_groups + 4) * 1.01;
  for (int t = 0; t < rows; ++t) {
    for (int j = 0; j < n; ++j) {
      double exact = 0, sizes = 0;
      for (int i = 0; i < k; ++i) {
        const double code = values.codes[j * k + i], minimum = values.minima[j * k + i];
        exact += a[t * k + i] * (code + minimum);
        sizes += std::abs(a[t * k + i]) * (std::abs(code) + std::abs(minimum));
      }
      ASSERT_LE(std::abs(y[t * n + j] - exact), per_sum * sizes + 1e-30) << t << ", " << j;
    }
  }
}

// The weights count exactly, and x as its rounding leaves it.
TEST(Int8LinearGguf, IsWithinItsErrorBoundOfFloat64) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const GgufFormat format : kGgufFormats) {
      const Context context = make_context(2);
      for (const mx::Dtype dtype : float_dtypes()) {
        const auto s = gguf_source(70, 768, format, 7);
        for (const int rows : {1, 2, 5, 9, 16, 17, 33, 50}) {
          SCOPED_TRACE(text(isa, format) + " " + dtype_name(dtype) + ", " + std::to_string(rows) +
                       " rows");
          ASSERT_NO_FATAL_FAILURE(
              expect_near_float64(context, *s, random_array({rows, 768}, dtype, 1)));
        }
      }
      EXPECT_TRUE(kernel_ran(context, "linear", 3 * 8, int8_kernel())) << isa;
    }
  }
}

// Makes the scales of a block 1.
void set_scales_to_one(GgufFormat format, uint8_t* block) {
  if (format == GgufFormat::kMxfp4) block[0] = 127;
  if (format == GgufFormat::kNvfp4) std::memset(block, 0x38, 4);
  for (const int64_t place : gguf_half_places(format)) {
    block[place] = 0;
    block[place + 1] = 0x3C;
  }
}

// The largest integers of both sides, in every place: partial sums in 16 or 32 bits must hold them.
TEST(Int8LinearGguf, TheLargestProductsAreExact) {
  const int n = 32, k = 256;
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    const Context context = make_context(1);
    for (const GgufFormat format : kGgufFormats) {
      for (const uint8_t byte : {0x00, 0x7F, 0x80, 0xFF}) {
        GgufSource s = *gguf_source(n, k, format, 1);
        std::ranges::fill(s.bytes, byte);
        for (size_t at = 0; at < s.bytes.size();
             at += static_cast<size_t>(gguf_block(format).bytes))
          set_scales_to_one(format, &s.bytes[at]);
        for (int row = 0; row < n; ++row)
          gguf_reference(format, s.bytes.data() + row * gguf_row_bytes(format, k), k,
                         s.values.data() + row * k);
        s.rows.data = s.bytes.data();
        for (const int rows : {1, 2, 4, 9, 49}) {
          for (const float sign : {1.0f, -1.0f}) {
            SCOPED_TRACE(text(isa, format) + ", bytes of " + std::to_string(byte));
            ASSERT_NO_FATAL_FAILURE(
                expect_near_float64(context, s, mx::full({rows, k}, sign * 127, mx::bfloat16)));
          }
        }
      }
    }
  }
}

// With a whole number of packed blocks, where few rows meet codes in registers, and, of formats
// that allow it, with a part of one: more blocks than a kernel makes ready together.
TEST(Int8LinearGguf, ARowHasTheSameBitsInAnyBatchAndOnEveryInstructionSet) {
  const int n = 2 * 40;
  for (const GgufFormat format : kGgufFormats) {
    std::vector<int> columns = {768};
    if (gguf_block(format).weights == 32) columns.push_back(544);
    for (const int k : columns) {
      const auto s = gguf_source(n, k, format, 7);
      for (const mx::Dtype dtype : float_dtypes())
        ASSERT_NO_FATAL_FAILURE(expect_bits_of_rows(
            n, k, dtype, gguf_block(format).name,
            [&](const Context& context, bool interleave) {
              return LinearWeight{.weight = pack(context, *s, dtype, interleave)};
            },
            int8_kernel));
    }
  }
}

// linear() is what its reference is, which QUIRE_USE_REFERENCE and parity tests compare with.
void expect_reference(const LinearWeight& w) {
  Context context = make_context(2);
  const mx::array x = random_array({5, 512}, mx::bfloat16, 1);
  const mx::array y = linear(context, x, w, {.out_dtype = mx::float32});
  mx::eval(y);
  context.use_reference = true;
  const mx::array expected = linear(context, x, w, {.out_dtype = mx::float32});
  const float most = mx::max(mx::abs(expected)).item<float>();
  EXPECT_TRUE(near(y, expected, {.abs = 1e-5f * most, .rel = 1e-5f}));
}

// The weights' own rounding would be 2^-9 of each.
TEST(Int8LinearGguf, TheReferenceRoundsActivationsToo) {
  const Context context = make_context(2);
  for (const GgufFormat format : kGgufFormats) {
    SCOPED_TRACE(gguf_block(format).name);
    const auto s = gguf_source(40, 512, format, 3);
    expect_reference({.weight = pack(context, *s, mx::bfloat16)});
  }
  const auto a = gguf_source(40, 512, GgufFormat::kQ4_K, 3),
             b = gguf_source(24, 512, GgufFormat::kQ6_K, 4);
  GgufRows parts[] = {a->rows, b->rows};
  for (GgufRows& part : parts) part.int8_activations = true;
  expect_reference({.weight = pack_gguf_matrix(context, parts, mx::bfloat16)});
}

// Parts of two formats stay apart: each has the bits that it has alone.
TEST(Int8LinearGguf, AMixHasTheBitsOfItsParts) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    SCOPED_TRACE(isa);
    const auto a = gguf_source(48, 512, GgufFormat::kQ4_K, 1),
               b = gguf_source(24, 512, GgufFormat::kQ6_K, 2);
    GgufRows parts[] = {a->rows, b->rows};
    for (GgufRows& part : parts) part.int8_activations = true;
    for (const int rows : {1, 7, 40}) {
      const Context context = make_context(2), other = make_context(2);
      const LinearWeight mix = {.weight = pack_gguf_matrix(context, parts, mx::bfloat16)};
      const mx::array x = random_array({rows, 512}, mx::bfloat16, 1);
      const mx::array y = linear(context, x, mix);
      const mx::array apart =
          mx::concatenate({linear(other, x, {.weight = pack(other, *a, mx::bfloat16)}),
                           linear(other, x, {.weight = pack(other, *b, mx::bfloat16)})},
                          1);
      EXPECT_TRUE(same_bits(y, mx::contiguous(apart))) << rows << " rows";
      EXPECT_TRUE(kernel_ran(context, "linear", 1, "cpu_parts"));
      EXPECT_TRUE(kernel_ran(other, "linear", 2, int8_kernel()));
    }
  }
}

// Memory against the file's, and embeddings and values from it.
TEST(Int8LinearGguf, KeepsTheFilesBitsAndValues) {
  for (const GgufFormat format : kGgufFormats) {
    SCOPED_TRACE(gguf_block(format).name);
    const Context context = make_context(2);
    const auto s = gguf_source(64, 512, format, 5);
    const PackedMatrix packed = pack(context, *s, mx::bfloat16);
    EXPECT_LE(static_cast<double>(packed.nbytes()), 1.05 * static_cast<double>(s->bytes.size()));
    const std::shared_ptr<const std::byte[]> rows = dequantise_rows(context, packed);
    const mx::array again(const_cast<std::byte*>(rows.get()), {64, 512}, mx::bfloat16,
                          [](void*) {});
    EXPECT_TRUE(mx::array_equal(again, s->dense(mx::bfloat16)).item<bool>());
  }
}

TEST(Int8LinearGguf, ZerosStayZeroAndNonFiniteRowsStayAlone) {
  for (const auto& isa : isas_to_test(/*with_vnni=*/true)) {
    const ForcedIsa forced(isa);
    for (const GgufFormat format :
         {GgufFormat::kQ8_0, GgufFormat::kQ4_K, GgufFormat::kQ6_K, GgufFormat::kMxfp4}) {
      SCOPED_TRACE(text(isa, format));
      const Context context = make_context(1);
      const auto s = gguf_source(32, 256, format, 5);
      std::vector<float> values(3 * 256, 0.0f);
      values[256 + 5] = INFINITY;
      values[2 * 256 + 7] = 1.0f;
      const mx::array x = mx::astype(mx::array(values.data(), {3, 256}, mx::float32), mx::bfloat16);
      mx::eval(x);
      const auto y = to_floats(linear(context, x, {.weight = pack(context, *s, mx::bfloat16)}));
      for (int i = 0; i < 32; ++i) {
        EXPECT_EQ(y[i], 0.0f);
        EXPECT_FALSE(std::isfinite(y[32 + i]));
        EXPECT_TRUE(std::isfinite(y[64 + i]));
      }
    }
  }
}

TEST(Int8LinearGguf, RefusesWhatItCannotMultiply) {
  const Context context = make_context(1);
  const auto refusal = [&](const std::vector<GgufRows>& parts) -> std::string {
    try {
      pack_gguf_matrix(context, parts, mx::bfloat16);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  for (const GgufFormat format : {GgufFormat::kQ4_K, GgufFormat::kMxfp4}) {
    const auto s = gguf_source(16, 256, format, 5);
    GgufRows rows = s->rows;
    rows.int8_activations = true;
    EXPECT_NE(refusal({rows, s->rows}).find(gguf_block(format).name), std::string::npos);
  }
}

}  // namespace
}  // namespace quire::ops
