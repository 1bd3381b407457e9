#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>

#include "ops/embedding/embedding.h"
#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/dense/linear_cpu.h"
#include "ops/linear/gguf/gguf_one_row_cpu.h"
#include "ops/linear/gguf/gguf_test_util.h"
#include "ops/linear/linear_format.h"
#include "ops/linear/linear_reference.h"
#include "ops/linear/linear_test_util.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

std::string text(const std::string& isa, mx::Dtype dtype, GgufFormat format) {
  return isa + " " + dtype_name(dtype) + ", " + gguf_block(format).name;
}

PackedMatrix pack(const Context& context, const GgufSource& s, mx::Dtype dtype,
                  bool interleave = false) {
  return pack_gguf_matrix(context, {&s.rows, 1}, dtype, interleave);
}

// The one promise: the bits of the dense weight of the reference's values, for every number of
// rows, on every instruction set.
TEST(GgufLinear, EqualsTheDenseLinearOfTheDequantisedWeight) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const GgufFormat format : kGgufFormats) {
        for (const auto& [n, k] : {std::pair(70, 256), {33, 416}, {112, 768}, {24, 2048}}) {
          if (k % gguf_block(format).weights != 0) continue;
          SCOPED_TRACE(text(isa, dtype, format) + ", " + std::to_string(n) + " x " +
                       std::to_string(k));
          const Context context = make_context(2);
          const auto s = gguf_source(n, k, format, 7);
          ASSERT_NO_FATAL_FAILURE(expect_bits_of_dense(
              context, {.weight = pack(context, *s, dtype)},
              {.weight = pack_dense(context, s->dense(dtype))}, product_kernel(dtype)));
        }
      }
    }
  }
}

// The same for what linear() computes on the way, with gates and ups interleaved.
TEST(GgufLinear, NormResidualAndGateAreThoseOfTheDenseLinear) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const GgufFormat format : kGgufFormats) {
        SCOPED_TRACE(text(isa, dtype, format));
        const Context context = make_context(2);
        const auto s = gguf_source(2 * 40, 256, format, 7);
        ASSERT_NO_FATAL_FAILURE(
            expect_fused_bits_of_dense(context,
                                       {.plain = {.weight = pack(context, *s, dtype)},
                                        .gated = {.weight = pack(context, *s, dtype, true)}},
                                       pack_both_orders(context, s->dense(dtype))));
      }
    }
  }
}

// Planes as AMX has them, which are not turned, in the kernel that computes one row of them there:
// the bits of the dense weight. Rows of weights are near each other in size or far, so that blocks
// are exact or not.
TEST(GgufLinear, OneRowReadsPlanesThatAreNotTurned) {
  const auto isas = isas_to_test();
  for (const char* needed : {"avx512_bf16", "avx512"})
    if (std::ranges::find(isas, needed) == isas.end()) GTEST_SKIP() << "takes " << needed;
  const int n = 70, k = 768;
  const auto half_of = [](int64_t row, size_t, std::mt19937& generator) {
    const auto exponent = static_cast<uint16_t>(row < 40 ? 8 : generator() % 31);
    return static_cast<uint16_t>((generator() & 0x83FF) | exponent << 10);
  };
  for (const GgufFormat format : kGgufFormats) {
    if (gguf_layout(format).bits == 0 || gguf_layout(format).bits == 4) continue;
    SCOPED_TRACE(gguf_block(format).name);
    const auto s = gguf_source(n, k, format, 7, half_of);
    const auto packed = [&] {
      const ForcedIsa forced("avx512_bf16");
      return pack(make_context(2), *s, mx::bfloat16);
    }();
    ASSERT_FALSE(packed.turned);
    const ForcedIsa forced("avx512");
    const Context context = make_context(2);
    const LinearWeight dense = {.weight = pack_dense(context, s->dense(mx::bfloat16))};
    const mx::array x = random_array({1, k}, mx::bfloat16, 1);
    mx::array expected = linear(context, x, dense, {.out_dtype = mx::float32});
    mx::eval(expected);
    std::vector<float> y(n);
    LinearParams p = linear_format(packed, mx::float32);
    p.rows = 1;
    p.x = x.data<void>();
    p.w = packed.data.get();
    p.y = y.data();
    ASSERT_TRUE(serves_gguf_one_row_cpu(p));
    kHighwayLinear.run(*context.pool, p);
    ASSERT_EQ(std::memcmp(y.data(), expected.data<float>(), n * sizeof(float)), 0);
  }
}

// Against float64 with the reference's float32 values, which are exact but for the subtraction of a
// minimum: what remains is the rounding of the weights to the model's dtype, at most u |w| each
// (and half of float16's smallest denormal), and the sums' own error, bounded as for dense weights.
TEST(GgufLinear, IsWithinItsErrorBoundOfFloat64) {
  const int n = 48, k = 512, rows = 5;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const GgufFormat format : kGgufFormats) {
      for (const mx::Dtype dtype : float_dtypes()) {
        SCOPED_TRACE(text(isa, dtype, format));
        const Context context = make_context(2);
        const auto s = gguf_source(n, k, format, 9);
        const LinearWeight w = {.weight = pack(context, *s, dtype)};
        const mx::array x = random_array({rows, k}, dtype, 1);
        const auto y = to_floats(linear(context, x, w, {.out_dtype = mx::float32}));
        const auto a = to_floats(x);
        const double u = unit_roundoff(mx::float32),
                     u_w = dtype == mx::float32 ? 0 : unit_roundoff(dtype);
        // One chain over all k is the longest order of sums that there is.
        const int num_sums = k + 3;
        const double least = dtype == mx::float16 ? 0x1p-25 : 0;
        for (int t = 0; t < rows; ++t) {
          for (int j = 0; j < n; ++j) {
            double exact = 0, magnitude = 0, inputs = 0;
            for (int i = 0; i < k; ++i) {
              const double product = static_cast<double>(a[t * k + i]) * s->values[j * k + i];
              exact += product;
              magnitude += std::abs(product);
              inputs += std::abs(a[t * k + i]);
            }
            const double bound = (u_w + 1.01 * u * num_sums) * magnitude + least * inputs + 1e-30;
            ASSERT_LE(std::abs(y[t * n + j] - exact), bound) << t << ", " << j;
          }
        }
      }
    }
  }
}

// Shortcuts are taken where the exponents of d and of a minimum's dmin are near each other, and
// where d is small: values on both sides of their limits, seen alone and before any rounding of
// sums, as products with rows of the identity. Rows of a pair of panels have exponents alike, since
// they take them together.
void expect_values_of_the_formula(const std::function<int(int64_t block, size_t i)>& exponent_of) {
  const int exponents = 24, k = 256;
  const auto half_of = [&](int64_t row, size_t i, std::mt19937& generator) {
    const auto random = static_cast<uint16_t>(generator());
    const auto exponent = static_cast<uint16_t>(std::clamp(exponent_of(row / 32, i), 0, 30));
    const auto mantissa = static_cast<uint16_t>(random % 4 == 0 ? 0x3FF : random >> 3 & 0x3FF);
    return static_cast<uint16_t>((random & 0x8000) | exponent << 10 | mantissa);
  };
  for (const GgufFormat format : kGgufFormats) {
    const auto s = gguf_source(32 * exponents, k, format, 3, half_of);
    const mx::array identity = mx::eye(k, k, 0, mx::bfloat16);
    const mx::array values =
        mx::contiguous(mx::astype(mx::transpose(s->dense(mx::bfloat16)), mx::float32));
    for (const auto& isa : isas_to_test()) {
      const ForcedIsa forced(isa);
      SCOPED_TRACE(text(isa, mx::bfloat16, format));
      const Context context = make_context(2);
      const LinearWeight w = {.weight = pack(context, *s, mx::bfloat16)};
      const auto product = [&](const mx::array& x) {
        return linear(context, x, w, {.out_dtype = mx::float32});
      };
      ASSERT_TRUE(mx::array_equal(product(identity), values).item<bool>());
      for (int row = 0; row < k; row += 5)
        ASSERT_TRUE(
            mx::array_equal(product(matrix_rows(identity, row, 1)), matrix_rows(values, row, 1))
                .item<bool>())
            << "k " << row;
    }
  }
}
TEST(GgufLinear, ScalesOfAnyDistanceGiveTheValuesOfTheFormula) {
  for (const int64_t d : {5, 12})
    expect_values_of_the_formula(
        [&](int64_t block, size_t i) { return static_cast<int>(i == 0 ? d : d + block - 9); });
}
TEST(GgufLinear, ScalesOfAnySizeGiveTheValuesOfTheFormula) {
  expect_values_of_the_formula(
      [](int64_t block, size_t i) { return static_cast<int>(i == 0 ? block : block + 2); });
}

TEST(GgufLinear, TheLayoutHoldsTheFilesValues) {
  for (const GgufFormat format : kGgufFormats) {
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const bool interleave : {false, true}) {
        SCOPED_TRACE(text("", dtype, format));
        const Context context = make_context(2);
        const auto s = gguf_source(74, 512, format, 5);
        const PackedMatrix packed = pack(context, *s, dtype, interleave);
        if (!on_cuda()) {
          EXPECT_TRUE(mx::array_equal(unpack_matrix(packed), s->dense(dtype)).item<bool>());
        }
        if (interleave) continue;
        const std::shared_ptr<const std::byte[]> rows = dequantise_rows(context, packed);
        const mx::array again(const_cast<std::byte*>(rows.get()), {74, 512}, dtype, [](void*) {});
        EXPECT_TRUE(mx::array_equal(again, s->dense(dtype)).item<bool>());
      }
    }
  }
}

// Memory against the file's: at most 5 % more, for rows that fill panels and blocks.
TEST(GgufLinear, KeepsTheFilesBits) {
  for (const GgufFormat format : kGgufFormats) {
    const Context context = make_context(2);
    const auto s = gguf_source(64, 512, format, 5);
    const auto bytes = static_cast<double>(pack(context, *s, mx::bfloat16).nbytes());
    EXPECT_LE(bytes, 1.05 * static_cast<double>(s->bytes.size())) << gguf_block(format).name;
  }
}

TEST(GgufLinear, EmbeddingsAreReadFromThePackedTable) {
  const std::vector<int32_t> ids = {0, 36, 15, 16, 17, 0, 31, 32};
  const mx::array at(ids.data(), {8}, mx::int32);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const GgufFormat format : kGgufFormats) {
      for (const mx::Dtype dtype : float_dtypes()) {
        SCOPED_TRACE(text(isa, dtype, format));
        Context context = make_context(2);
        const auto s = gguf_source(37, 512, format, 5);
        const PackedMatrix table = pack(context, *s, dtype);
        const mx::array expected = mx::take(s->dense(dtype), at, 0);
        EXPECT_TRUE(mx::array_equal(embedding(context, at, table), expected).item<bool>());
        EXPECT_TRUE(kernel_ran(context, "embedding", 1));
        if (on_cuda()) continue;  // the reference reads the CPU's layout
        context.use_reference = true;
        EXPECT_TRUE(mx::array_equal(embedding(context, at, table), expected).item<bool>());
      }
    }
  }
}

// Rows that are fetched are packed as those in memory are, and not read once they may be gone.
TEST(GgufLinear, RowsMayBeFetchedForAWhile) {
  const Context context = make_context(2);
  for (const GgufFormat second : {GgufFormat::kQ4_K, GgufFormat::kQ6_K}) {
    // Gate and up of two formats have equally many rows.
    const int n = second == GgufFormat::kQ4_K ? 600 : 550;
    const auto a = gguf_source(n, 8192, GgufFormat::kQ4_K, 1),
               b = gguf_source(1100 - n, 8192, second, 2);
    for (const bool interleave : {false, true}) {
      SCOPED_TRACE(interleave);
      const GgufRows there[] = {a->rows, b->rows};
      GgufRows away[] = {a->rows, b->rows};
      away[0].data = away[1].data = nullptr;
      std::atomic<int> pieces = 0;
      const auto fetch = [&](size_t part, int64_t begin,
                             int64_t count) -> std::shared_ptr<const void> {
        const int64_t row_bytes = gguf_row_bytes(there[part].format, 8192);
        const size_t bytes = static_cast<size_t>(count * row_bytes);
        const auto* data = static_cast<const uint8_t*>(there[part].data) + begin * row_bytes;
        ++pieces;
        const std::shared_ptr<uint8_t> piece(new uint8_t[bytes], [bytes](uint8_t* p) {
          std::fill_n(p, bytes, 0xff);  // no weight
          delete[] p;
        });
        std::copy_n(data, bytes, piece.get());
        return piece;
      };
      const PackedMatrix packed =
          pack_gguf_matrix(context, away, mx::bfloat16, interleave, {.fetch = fetch});
      const PackedMatrix expected = pack_gguf_matrix(context, there, mx::bfloat16, interleave);
      EXPECT_TRUE(mx::array_equal(unpack_matrix(packed), unpack_matrix(expected)).item<bool>());
      EXPECT_GE(pieces, 4);
    }
  }
}

// Parts of one format become one matrix; memory at any alignment.
TEST(GgufLinear, PartsAreStacked) {
  for (const GgufFormat format : kGgufFormats) {
    const Context context = make_context(2);
    const auto a = gguf_source(24, 256, format, 1), b = gguf_source(40, 256, format, 2);
    std::vector<uint8_t> odd(b->bytes.size() + 1);
    std::memcpy(odd.data() + 1, b->bytes.data(), b->bytes.size());
    const GgufRows parts[] = {a->rows,
                              {.data = odd.data() + 1, .n = 40, .k = 256, .format = format}};
    const PackedMatrix packed = pack_gguf_matrix(context, parts, mx::bfloat16);
    const mx::array dense = mx::concatenate({a->dense(mx::bfloat16), b->dense(mx::bfloat16)}, 0);
    const std::shared_ptr<const std::byte[]> rows = dequantise_rows(context, packed);
    const mx::array again(const_cast<std::byte*>(rows.get()), {64, 256}, mx::bfloat16,
                          [](void*) {});
    EXPECT_TRUE(mx::array_equal(again, dense).item<bool>());
  }
}

// What is no weight is refused by the format's name.
TEST(GgufLinear, RefusesWhatItCannotHold) {
  const Context context = make_context(1);
  const auto refused = [&](const std::vector<GgufRows>& parts, const std::string& what) {
    try {
      pack_gguf_matrix(context, parts, mx::bfloat16);
      ADD_FAILURE() << "packed";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  for (const GgufFormat format : kGgufFormats) {
    SCOPED_TRACE(gguf_block(format).name);
    const auto s = gguf_source(32, 256, format, 5);
    for (const int64_t place : gguf_half_places(format)) {
      for (const uint16_t half : {0x7C00, 0xFC00, 0x7E01}) {
        std::vector<uint8_t> bytes = s->bytes;
        const auto last = bytes.size() - static_cast<size_t>(gguf_block(format).bytes - place);
        std::memcpy(&bytes[last], &half, sizeof(half));
        refused({{.data = bytes.data(), .n = 32, .k = 256, .format = format}},
                gguf_block(format).name);
      }
    }
  }
  const auto q4 = gguf_source(16, 256, GgufFormat::kQ4_K, 5),
             wide = gguf_source(16, 512, GgufFormat::kQ4_K, 5);
  refused({{.data = q4->bytes.data(), .n = 16, .k = 128, .format = GgufFormat::kQ4_K}}, "q4_k");
  refused({q4->rows, wide->rows}, "q4_k");
  refused({{.data = q4->bytes.data(), .n = 16, .k = 256}}, "none");
}

}  // namespace
}  // namespace quire::ops
