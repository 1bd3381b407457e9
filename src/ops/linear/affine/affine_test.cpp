#include <array>

#include "ops/embedding/embedding.h"
#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/linear_reference.h"
#include "ops/linear/linear_test_util.h"
#include "ops/linear/pack/affine_pack_cpu.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

std::vector<AffineFormat> formats() { return affine_formats(/*int8_activations=*/false); }

// The kernel that must serve the format.
const char* kernel_for(const std::string& isa, mx::Dtype dtype, const AffineFormat& format) {
  if (isa == "amx" && format.scale_dtype == mx::float32) return cpu_kernel_name();
  return product_kernel(dtype);
}

// The one promise: an affine weight gives the bits of the dense weight that MLX dequantises it to,
// for every number of rows, on every instruction set.
TEST(AffineLinear, EqualsTheDenseLinearOfTheDequantisedWeight) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const AffineFormat& format : formats()) {
        for (const auto& [n, k] : {std::pair(70, 128), {33, 384}}) {
          const Context context = make_context(2), dense_context = make_context(2);
          const AffineSource s = affine_source(n, k, format, dtype, 7);
          LinearWeight affine = {.weight = pack_affine_matrix(context, {&s.rows, 1}, dtype)};
          LinearWeight dense = {.weight = pack_dense(context, s.dense)};
          affine.bias = dense.bias = random_array({n}, mx::float32, 3);
          for (const int rows : {1, 3, 16, 17, 32, 33, 70}) {
            SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + format_name(format) + ", " +
                         std::to_string(n) + " x " + std::to_string(k) + ", " +
                         std::to_string(rows) + " rows");
            const mx::array x = random_array({rows, k}, dtype, 1);
            ASSERT_TRUE(same_bits(linear(context, x, affine), linear(dense_context, x, dense)));
            ASSERT_TRUE(same_bits(linear(context, x, affine, {.out_dtype = mx::float32}),
                                  linear(dense_context, x, dense, {.out_dtype = mx::float32})));
          }
          EXPECT_TRUE(kernel_ran(context, "linear", 14, kernel_for(isa, dtype, format)));
        }
      }
    }
  }
}

// Every edge of the kernels' tiles and slices: all small numbers of rows, those around a chunk of
// rows, odd numbers of panels, and K that ends inside a block.
TEST(AffineLinear, EveryNumberOfRowsAndEdgeGivesTheBitsOfTheDenseLinear) {
  struct Case {
    int n, k;
    AffineFormat format;
  };
  const Case cases[] = {{16, 32, {4, 32, mx::bfloat16}},    {100, 416, {4, 32, mx::bfloat16}},
                        {33, 352, {8, 32, mx::bfloat16}},   {65, 320, {4, 64, mx::bfloat16}},
                        {80, 192, {8, 64, mx::float16}},    {48, 384, {4, 128, mx::bfloat16}},
                        {112, 640, {8, 128, mx::bfloat16}}, {40, 320, {4, 64, mx::float32}},
                        {50, 160, {8, 32, mx::float32}},    {50, 160, {2, 32, mx::bfloat16}},
                        {65, 320, {3, 64, mx::bfloat16}},   {33, 352, {5, 32, mx::bfloat16}},
                        {48, 640, {6, 128, mx::float16}}};
  std::vector<int> row_counts = {191, 192, 193};
  for (int rows = 1; rows <= 33; ++rows) row_counts.push_back(rows);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const auto& [n, k, format] : cases) {
        const Context context = make_context(2), dense_context = make_context(2);
        const AffineSource s = affine_source(n, k, format, dtype, 11);
        const LinearWeight affine = {.weight = pack_affine_matrix(context, {&s.rows, 1}, dtype)};
        const LinearWeight dense = {.weight = pack_dense(context, s.dense)};
        for (const int rows : row_counts) {
          const mx::array x = random_array({rows, k}, dtype, 1);
          ASSERT_TRUE(same_bits(linear(context, x, affine, {.out_dtype = mx::float32}),
                                linear(dense_context, x, dense, {.out_dtype = mx::float32})))
              << isa << " " << dtype_name(dtype) << ", " << format_name(format) << ", " << n
              << " x " << k << ", " << rows << " rows";
        }
        EXPECT_TRUE(kernel_ran(context, "linear", static_cast<int>(row_counts.size()),
                               kernel_for(isa, dtype, format)));
      }
    }
  }
}

// An infinite x makes its own row infinite or NaN and no other call's: kernels that run behind or
// ahead of their weights must not multiply what is left of the last ones.
TEST(AffineLinear, InfinitiesStayInTheirCall) {
  const int n = 70, k = 256;  // whole blocks: padding would leave zeros behind
  const AffineFormat format = {4, 32, mx::bfloat16};
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    const Context context = make_context(1);
    AffineSource s = affine_source(n, k, format, mx::bfloat16, 7);
    const LinearWeight finite = {.weight = pack_affine_matrix(context, {&s.rows, 1}, mx::bfloat16)};
    s.scales = mx::full({n, k / 32}, INFINITY, mx::bfloat16);
    finish_source(s, n, k, format, mx::bfloat16);
    const LinearWeight infinite = {.weight =
                                       pack_affine_matrix(context, {&s.rows, 1}, mx::bfloat16)};
    for (const int rows : {1, 2, 7, 20}) {
      const mx::array x = random_array({rows, k}, mx::bfloat16, 1);
      const mx::array before = linear(context, x, finite);
      mx::eval(before);
      mx::eval(linear(context, mx::full({rows, k}, INFINITY, mx::bfloat16), finite));
      mx::eval(linear(context, x, infinite));
      EXPECT_TRUE(same_bits(linear(context, x, finite), before)) << isa << ", " << rows << " rows";
    }
  }
}

// Kernels may use shortcuts where a bias is not far from its scale: none may show.
TEST(AffineLinear, AnyScaleAndBiasGiveTheBitsOfTheDenseWeight) {
  const int n = 64, k = 256, groups = 4;
  const AffineFormat formats[] = {
      {8, 64, mx::bfloat16}, {4, 64, mx::bfloat16}, {4, 64, mx::float16}};
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const float scale : {0.01f, -0.3f, 0.0f, 0x1p-13f, 0x1.8p-70f, -0x1.2p-100f}) {
      for (const float ratio : {0.0f, -0.0f, 0x1p-9f, -0.7f, 0.99f, -1.0f, 7.9f, -8.0f, 127.5f,
                                2040.0f, -2049.0f, 16384.0f, 16500.0f, -1e6f, 0x1p30f}) {
        for (const AffineFormat& format : formats) {
          for (const bool mixed : {false, true}) {
            SCOPED_TRACE(isa + ", " + format_name(format) + ", scale " + std::to_string(scale) +
                         ", bias " + std::to_string(ratio) +
                         (mixed ? " times, some rows" : " times"));
            const Context context = make_context(2), dense_context = make_context(2);
            AffineSource s = affine_source(n, k, format, mx::bfloat16, 7);
            const mx::array rows = mx::reshape(mx::arange(n), {n, 1});
            const mx::array chosen = mixed ? mx::equal(rows, mx::array(21)) : rows >= mx::array(0);
            const auto all = [&](float value) { return mx::full({n, groups}, value, mx::float32); };
            const float bias = scale == 0.0f ? ratio : scale * ratio;
            s.scales = mx::contiguous(
                mx::astype(mx::where(chosen, all(scale), s.scales), format.scale_dtype));
            s.biases = mx::contiguous(
                mx::astype(mx::where(chosen, all(bias), s.biases), format.scale_dtype));
            finish_source(s, n, k, format, mx::bfloat16);
            const LinearWeight affine = {
                .weight = pack_affine_matrix(context, {&s.rows, 1}, mx::bfloat16)};
            const LinearWeight dense = {.weight = pack_dense(context, s.dense)};
            for (const int t : {1, 5, 20, 40}) {
              const mx::array x = random_array({t, k}, mx::bfloat16, 1);
              ASSERT_TRUE(same_bits(linear(context, x, affine, {.out_dtype = mx::float32}),
                                    linear(dense_context, x, dense, {.out_dtype = mx::float32})));
            }
          }
        }
      }
    }
  }
}

// Scales and biases as far from each other as a shortcut takes them, and every code: each value is
// seen alone and before any rounding of sums, as the product with a row of the identity. A shortcut
// is taken for whole panels, so that neighbouring rows have biases of one size.
TEST(AffineLinear, EveryCodeOfManyScalesHasTheDenseValue) {
  constexpr int kRows = 512, kColumns = 256;
  std::mt19937 generator(5);
  std::vector<float> scales(kRows), biases(kRows);
  for (int i = 0; i < kRows; ++i) {
    // A scale of any mantissa, a bias of 1/2 to 2^14 times of it.
    const float sign = generator() % 2 ? 1.0f : -1.0f;
    scales[i] = sign * std::ldexp(128.0f + static_cast<float>(generator() % 128), -14);
    biases[i] =
        -scales[i] * std::ldexp(1.0f + static_cast<float>(generator() % 128) / 128.0f, i / 32 - 1);
  }
  const auto floats = [](const std::vector<float>& values) {
    return mx::repeat(mx::reshape(mx::array(values.data(), {kRows}, mx::float32), {kRows, 1}),
                      kColumns / 128, 1);
  };
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      const AffineFormat format = {bits, 128, mx::bfloat16};
      const Context context = make_context(2);
      AffineSource s = affine_source(kRows, kColumns, format, mx::bfloat16, 7);
      // Codes in ascending order, again and again.
      std::vector<uint32_t> words(static_cast<size_t>(kRows) * kColumns * bits / 32);
      for (size_t i = 0; i < words.size() * 32; ++i)
        words[i / 32] |= static_cast<uint32_t>(i / bits >> i % bits & 1) << i % 32;
      s.values = mx::array(words.data(), {kRows, kColumns * bits / 32}, mx::uint32);
      s.scales = mx::contiguous(mx::astype(floats(scales), mx::bfloat16));
      s.biases = mx::contiguous(mx::astype(floats(biases), mx::bfloat16));
      finish_source(s, kRows, kColumns, format, mx::bfloat16);
      const LinearWeight w = {.weight = pack_affine_matrix(context, {&s.rows, 1}, mx::bfloat16)};
      const mx::array identity = mx::eye(kColumns, kColumns, 0, mx::bfloat16);
      const mx::array dense = mx::contiguous(mx::astype(mx::transpose(s.dense), mx::float32));
      const LinearOptions exact = {.out_dtype = mx::float32};
      const auto product = [&](const mx::array& x) { return linear(context, x, w, exact); };
      ASSERT_TRUE(mx::array_equal(product(identity), dense).item<bool>()) << isa;
      for (int k = 0; k < kColumns; ++k)
        ASSERT_TRUE(mx::array_equal(product(matrix_rows(identity, k, 1)), matrix_rows(dense, k, 1))
                        .item<bool>())
            << isa << ", " << bits << " bits, column " << k;
    }
  }
}

// Turned codes are the same rows, whichever instruction set wants them.
TEST(AffineLinear, TurnedCodesHoldWhatMlxDequantises) {
  if (on_cuda()) GTEST_SKIP() << "a layout of the CPU's kernels";
  for (const AffineFormat& format : formats()) {
    SCOPED_TRACE(format_name(format));
    const Context context = make_context(2);
    const AffineSource s = affine_source(37, 384, format, mx::bfloat16, 5);
    PackedMatrix packed = pack_affine_matrix(context, {&s.rows, 1}, mx::bfloat16);
    packed.turned = true;
    const QuantisedLayout layout = quantised_layout(packed);
    const auto memory = std::make_shared<std::byte[]>(static_cast<size_t>(layout.bytes()));
    const AffinePart part = {.scales = static_cast<const uint8_t*>(s.rows.scales),
                             .biases = static_cast<const uint8_t*>(s.rows.biases),
                             .n = s.rows.n,
                             .bits = format.bits,
                             .group_size = format.group_size,
                             .scale_type = check_float("test", "scales", format.scale_dtype)};
    const auto* values = static_cast<const uint8_t*>(s.rows.values);
    for (int64_t panel = 0; panel < layout.panels(); ++panel) {
      AffineRow rows[16];
      for (int64_t i = 0; i < 16; ++i)
        if (const int64_t row = layout.source_row(panel * 16 + i); row >= 0)
          rows[i] = {&part, row, values + row * layout.k * format.bits / 8};
      for (int64_t block = 0; block < layout.blocks(); ++block)
        affine_pack_block_cpu(
            layout, rows, block,
            reinterpret_cast<uint8_t*>(memory.get()) + layout.offset(panel, block));
    }
    packed.data = memory;
    EXPECT_TRUE(same_bits(unpack_matrix(packed), s.dense));
    const auto rows = dequantise_rows(context, packed);
    EXPECT_EQ(std::memcmp(rows.get(), s.dense.data<void>(), s.dense.nbytes()), 0);
  }
}

// The same for what linear() computes on the way, with gates and ups interleaved and K that fills
// no block.
TEST(AffineLinear, NormResidualAndSiluAreThoseOfTheDenseLinear) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : float_dtypes()) {
      for (const AffineFormat& format :
           {AffineFormat{4, 32, mx::bfloat16}, {8, 32, mx::bfloat16}, {4, 32, mx::float16}}) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + format_name(format));
        const Context context = make_context(2);
        const AffineSource s = affine_source(2 * 40, 224, format, dtype, 7);
        const auto pack = [&](bool interleave) {
          return LinearWeight{.weight =
                                  pack_affine_matrix(context, {&s.rows, 1}, dtype, interleave)};
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

// The bits contract of the quantised kernels: a row has the same bits whatever else is in the call,
// with what linear() computes on the way and without.
TEST(AffineLinear, RowsDoNotDependOnTheBatch) {
  constexpr int kMost = 512, n = 2 * 40, k = 384;
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const mx::Dtype dtype : {mx::bfloat16, mx::float16}) {
      const mx::array x = random_array({kMost, k}, dtype, 1);
      const mx::array residual = random_array({kMost, n}, dtype, 2);
      const mx::array norm = random_array({k}, mx::float32, 3);
      for (const AffineFormat& format : formats()) {
        if (format.scale_dtype != dtype) continue;
        const Context context = make_context(3);
        const AffineSource s = affine_source(n, k, format, dtype, 7);
        const LinearWeight plain = {.weight = pack_affine_matrix(context, {&s.rows, 1}, dtype)};
        const LinearWeight gated = {.weight =
                                        pack_affine_matrix(context, {&s.rows, 1}, dtype, true)};
        const auto run = [&](int begin, int rows) {
          const mx::array some = matrix_rows(x, begin, rows);
          const LinearOptions sum = {.residual = matrix_rows(residual, begin, rows)};
          const LinearOptions silu = {.norm = LinearOptions::Norm{norm, 1e-6f}, .gate = Gate{}};
          return std::array{linear(context, some, plain, {.out_dtype = mx::float32}),
                            linear(context, some, plain, sum), linear(context, some, gated, silu)};
        };
        const auto whole = run(0, kMost);
        int runs = 3;
        for (const int m : kRowCounts) {
          SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + format_name(format) + ", " +
                       std::to_string(m) + " rows");
          const int begin = (kMost - m) / 2;  // other rows, in other places of a tile
          const auto part = run(begin, m);
          for (size_t i = 0; i < part.size(); ++i)
            ASSERT_TRUE(same_bits(part[i], matrix_rows(whole[i], begin, m))) << "way " << i;
          runs += 3;
          ASSERT_TRUE(kernel_ran(context, "linear", runs, kernel_for(isa, dtype, format)));
        }
      }
    }
  }
}

// Against float64 with the exact scale * q + bias: what remains is the rounding of the weights to
// the model's dtype, at most u |w| each, and the sums' own error, bounded as for dense weights.
TEST(AffineLinear, IsWithinItsErrorBoundOfFloat64) {
  const int n = 48, k = 512, rows = 5;
  for (const AffineFormat& format : formats()) {
    if (format.scale_dtype == mx::float32) continue;  // then the product is rounded, too
    for (const mx::Dtype dtype : float_dtypes()) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + ", " + format_name(format));
      const Context context = make_context(2);
      const AffineSource s = affine_source(n, k, format, mx::float32, 9);
      const LinearWeight w = {.weight = pack_affine_matrix(context, {&s.rows, 1}, dtype)};
      const mx::array x = random_array({rows, k}, dtype, 1);
      const auto y = to_floats(linear(context, x, w, {.out_dtype = mx::float32}));
      const auto a = to_floats(x), b = to_floats(s.dense);
      const double u = unit_roundoff(mx::float32),
                   u_w = dtype == mx::float32 ? u : unit_roundoff(dtype) + u;
      const int num_sums = 16 + 3 + k / 32;
      for (int t = 0; t < rows; ++t) {
        for (int j = 0; j < n; ++j) {
          double exact = 0, magnitude = 0;
          for (int i = 0; i < k; ++i) {
            exact += static_cast<double>(a[t * k + i]) * b[j * k + i];
            magnitude += std::abs(static_cast<double>(a[t * k + i]) * b[j * k + i]);
          }
          const double bound = (u_w + 1.01 * u * num_sums) * magnitude + 1e-6;
          ASSERT_LE(std::abs(y[t * n + j] - exact), bound) << t << ", " << j;
        }
      }
    }
  }
}

// Parts of different formats become one matrix without a rounding: 4 bits fit into 8, a scale can
// stand twice, 16-bit scales are float32 scales.
TEST(AffineLinear, PartsOfDifferentFormatsAreStackedExactly) {
  const AffineFormat a = {4, 128, mx::bfloat16}, b = {8, 32, mx::bfloat16},
                     c = {4, 64, mx::float16};
  for (const auto& kinds : {std::vector{a, b}, {b, a}, {a, c, b}, {a, a}}) {
    for (const mx::Dtype dtype : float_dtypes()) {
      const Context context = make_context(2);
      std::vector<AffineSource> sources;
      std::vector<AffineRows> rows;
      std::vector<mx::array> dense;
      for (size_t i = 0; i < kinds.size(); ++i)
        sources.push_back(affine_source(24, 256, kinds[i], dtype, 20 + i));
      for (const auto& s : sources) rows.push_back(s.rows), dense.push_back(s.dense);
      const LinearWeight affine = {.weight = pack_affine_matrix(context, rows, dtype)};
      const LinearWeight whole = {.weight = pack_dense(context, mx::concatenate(dense, 0))};
      const mx::array x = random_array({5, 256}, dtype, 1);
      EXPECT_TRUE(same_bits(linear(context, x, affine), linear(context, x, whole)));
    }
  }
}

TEST(AffineLinear, TheLayoutHoldsWhatMlxDequantises) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const AffineFormat& format : formats()) {
      for (const mx::Dtype dtype : float_dtypes()) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + format_name(format));
        const Context context = make_context(2);
        const AffineSource s = affine_source(37, 256, format, dtype, 5);
        const PackedMatrix packed = pack_affine_matrix(context, {&s.rows, 1}, dtype);
        if (!on_cuda()) {
          EXPECT_TRUE(same_bits(unpack_matrix(packed), s.dense));
        }
        const auto rows = dequantise_rows(context, packed);
        EXPECT_EQ(std::memcmp(rows.get(), s.dense.data<void>(), s.dense.nbytes()), 0);
      }
    }
  }
}

TEST(AffineLinear, EmbeddingsAreReadFromThePackedTable) {
  const std::vector<int32_t> ids = {0, 36, 15, 16, 17, 0, 31, 32};
  const mx::array at(ids.data(), {8}, mx::int32);
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const AffineFormat& format : formats()) {
      for (const mx::Dtype dtype : float_dtypes()) {
        SCOPED_TRACE(isa + " " + dtype_name(dtype) + ", " + format_name(format));
        Context context = make_context(2);
        const AffineSource s = affine_source(37, 384, format, dtype, 5);
        const PackedMatrix table = pack_affine_matrix(context, {&s.rows, 1}, dtype);
        EXPECT_TRUE(same_bits(embedding(context, at, table), mx::take(s.dense, at, 0)));
        EXPECT_TRUE(kernel_ran(context, "embedding", 1));
        if (on_cuda()) continue;  // the reference reads the CPU's layout
        context.use_reference = true;
        EXPECT_TRUE(same_bits(embedding(context, at, table), mx::take(s.dense, at, 0)));
      }
    }
  }
}

// As many bits as the file has, unless a kernel is for others.
TEST(AffineLinear, NothingIsWidened) {
  for (const auto& isa : isas_to_test()) {
    const ForcedIsa forced(isa);
    for (const bool int8 : {false, true}) {
      if (int8 && on_cuda()) continue;
      for (const AffineFormat& format : affine_formats(int8)) {
        const bool wide = int8 || on_cuda();
        const int bits = wide ? packed_bits(format.bits) : format.bits;
        const Context context = make_context(2);
        const AffineSource s = affine_source(64, 512, format, mx::bfloat16, 5);
        const PackedMatrix packed = pack_affine_matrix(context, {&s.rows, 1}, mx::bfloat16);
        EXPECT_EQ(packed.nbytes(), 64u * 512 * static_cast<size_t>(bits) / 8 +
                                       64 * (512 / static_cast<size_t>(format.group_size)) * 2 *
                                           format.scale_dtype.size())
            << isa << ", " << format_name(format);
      }
    }
  }
}

// As after force_cpu_isa(): the op does not compute something else in silence.
TEST(AffineLinear, RefusesCodesPackedForAnotherInstructionSet) {
  if (on_gpu()) GTEST_SKIP() << "the CPU's";
  const AffineFormat format = {4, 64, mx::bfloat16};
  for (const auto& isa : isas_to_test()) {
    SCOPED_TRACE(isa);
    const ForcedIsa forced(isa);
    // Others read codes either way.
    if (kernel_for(isa, mx::bfloat16, format) != std::string(cpu_kernel_name())) continue;
    const Context context = make_context(1);
    const AffineSource s = affine_source(16, 128, format, mx::bfloat16, 5);
    LinearWeight w = {.weight = pack_affine_matrix(context, {&s.rows, 1}, mx::bfloat16)};
    w.weight.turned = !w.weight.turned;
    EXPECT_THROW(linear(context, mx::zeros({1, 128}, mx::bfloat16), w), std::logic_error);
  }
}

TEST(AffineLinear, RefusesFormatsWithoutAKernel) {
  const Context context = make_context(1);
  AffineSource s = affine_source(16, 128, {4, 64, mx::bfloat16}, mx::bfloat16, 5);
  s.rows.format.bits = 7;
  EXPECT_THROW(pack_affine_matrix(context, {&s.rows, 1}, mx::bfloat16), std::invalid_argument);
  s.rows.format = {4, 16, mx::bfloat16};
  EXPECT_THROW(pack_affine_matrix(context, {&s.rows, 1}, mx::bfloat16), std::invalid_argument);
}

}  // namespace
}  // namespace quire::ops
