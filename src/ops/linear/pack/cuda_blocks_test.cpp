// What a GPU's kernels make of matrices in blocks, with the functions that they call, run by the
// host lane by lane: no GPU is needed.
#include "ops/linear/pack/cuda_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

#include "ops/linear/affine/affine_test_util.h"
#include "ops/linear/cuda/linear_blocks.h"
#include "ops/linear/gguf/gguf_test_util.h"
#include "ops/linear/gguf/gguf_vectors.h"
#include "ops/linear/pack/block_float_matrix.h"

namespace quire::ops {
namespace {

using namespace quire::ops::testing;

Context cpu_context() { return make_context(2, make_cpu_device()); }

FloatType type_of(mx::Dtype dtype) {
  return dtype == mx::bfloat16 ? FloatType::kBf16 : FloatType::kF16;
}

// A matrix as the GPU stores it, on the host.
struct Arranged {
  CudaWeightLayout layout;
  std::vector<uint32_t> words;

  explicit Arranged(const PackedMatrix& packed) {
    const QuantisedLayout from = quantised_layout(packed);
    const CudaBlockArrangement arrangement(from, type_of(packed.dtype));
    layout = arrangement.layout();
    words.assign(static_cast<size_t>(layout.bytes() / 4), 0xFFFFFFFFu);
    for (int64_t panel = 0; panel < layout.panels(); ++panel)
      arrangement.arrange(packed.data.get(), panel, words.data());
  }
  const uint32_t* stage(int64_t panel, int64_t k) const {
    return words.data() + (panel * layout.panel_bytes() + k / 64 * layout.stage_bytes()) / 4;
  }
  const uint8_t* scales(int64_t panel, int64_t k) const {
    return reinterpret_cast<const uint8_t*>(words.data()) + layout.scales_offset() +
           panel * layout.panel_scale_bytes() + k / 128 * layout.block_scale_bytes;
  }
};

// The words that a lane loads of a stage: its part of each plane.
template <int kBits>
void load_words(const uint32_t* stage, int lane, uint32_t (&words)[kBits]) {
  int first = 0;
  for (int plane = 8; plane > 0; plane /= 2) {
    if ((kBits & plane) == 0) continue;
    for (int i = 0; i < plane; ++i) words[first++] = stage[plane_word(plane, lane, i)];
    stage += 32 * plane;
  }
}

// Bits of the values [packed rows][padded K] that the lanes put together for the tensor cores,
// whose m16n8k16 says where a lane's eight elements lie.
template <CudaSource kSource, FloatType kType>
std::vector<uint16_t> values_of_lanes(const Arranged& w) {
  const CudaWeightLayout& l = w.layout;
  std::vector<uint16_t> out(static_cast<size_t>(l.panels() * 16 * l.padded_k()));
  for (int64_t panel = 0; panel < l.panels(); ++panel)
    for (int64_t k = 0; k < l.padded_k(); k += 64)
      for (int lane = 0; lane < 32; ++lane) {
        uint32_t words[source_bits(kSource)], a[4][4];
        load_words(w.stage(panel, k), lane, words);
        const auto scale = [&](int group, int second) {
          return block_scale<kSource>(l, w.scales(panel, k),
                                      static_cast<int>(k % 128) + group * least_group(kSource),
                                      lane / 4 + second * 8);
        };
        dequantise_stage<kSource, kType>(words, scale, l.table, a);
        for (int step = 0; step < 4; ++step)
          for (int i = 0; i < 8; ++i) {
            const int64_t row = panel * 16 + lane / 4 + i / 2 % 2 * 8;
            const int64_t column = k + step * 16 + lane % 4 * 2 + i / 4 * 8 + i % 2;
            out[static_cast<size_t>(row * l.padded_k() + column)] =
                static_cast<uint16_t>(a[step][i / 2] >> (i % 2 * 16));
          }
      }
  return out;
}

// The same of single elements, as the rows of an embedding are read.
template <CudaSource kSource>
uint16_t single_value(const Arranged& w, int64_t row, int64_t k) {
  const uint32_t code = stage_code(w.layout.bits, w.stage(row / 16, k), static_cast<int>(row % 16),
                                   static_cast<int>(k % 64));
  const ScaleAndBias s =
      block_scale<kSource>(w.layout, w.scales(row / 16, k), static_cast<int>(k % 128 / 16 * 16),
                           static_cast<int>(row % 16));
  const float value = block_value<kSource>(s, code_values<kSource>(code, w.layout.table).first);
  return w.layout.type == FloatType::kBf16 ? from_float<Bf16>(value).bits
                                           : from_float<F16>(value).bits;
}

bool same(uint16_t a, uint16_t b) { return a == b || ((a | b) & 0x7FFF) == 0; }

// `wanted` [N, K], 16 bits each.
template <CudaSource kSource, FloatType kType>
void expect_values(const Arranged& w, const uint16_t* wanted) {
  const CudaWeightLayout& l = w.layout;
  const std::vector<uint16_t> values = values_of_lanes<kSource, kType>(w);
  for (int64_t n = 0; n < l.n; ++n)
    for (int64_t k = 0; k < l.k; ++k) {
      const int64_t row = l.packed_row(n);
      const uint16_t want = wanted[n * l.k + k];
      ASSERT_TRUE(same(values[static_cast<size_t>(row * l.padded_k() + k)], want))
          << n << ", " << k;
      ASSERT_TRUE(same(single_value<kSource>(w, row, k), want)) << n << ", " << k;
    }
}

void expect_values(const PackedMatrix& packed, const void* wanted) {
  const Arranged w(packed);
  ASSERT_LE(w.layout.block_scale_bytes, 256);  // what kernels have room for
  ASSERT_EQ(w.layout.block_scale_bytes % 16, 0);
  const auto* bits = static_cast<const uint16_t*>(wanted);
  with_block_source(w.layout.block_source, [&](auto source) {
    w.layout.type == FloatType::kBf16 ? expect_values<source(), FloatType::kBf16>(w, bits)
                                      : expect_values<source(), FloatType::kF16>(w, bits);
  });
}

// The values that the CPU's packed matrix has, also of gates and ups in turn; pack(interleave).
template <class Pack>
void expect_values_of_cpu(const Context& context, const Pack& pack) {
  const PackedMatrix plain = pack(false);
  const auto wanted = dequantise_rows(context, plain);
  ASSERT_NO_FATAL_FAILURE(expect_values(plain, wanted.get()));
  ASSERT_NO_FATAL_FAILURE(expect_values(pack(true), wanted.get()));
}

std::vector<uint8_t> bytes_of(std::string_view hex) {
  const auto digit = [](char c) { return c < 'a' ? c - '0' : c - 'a' + 10; };
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  return bytes;
}

constexpr mx::Dtype kDtypes[] = {mx::bfloat16, mx::float16};

bool is_affine_there(GgufFormat format) { return format == GgufFormat::kQ4_1; }

// Against what the `gguf` package makes of the same blocks.
TEST(CudaBlocks, HaveThePackagesValues) {
  const Context context = cpu_context();
  for (const GgufVector& vector : kGgufVectors) {
    if (is_affine_there(vector.format)) continue;
    SCOPED_TRACE(gguf_block(vector.format).name);
    const std::vector<uint8_t> blocks = bytes_of(vector.blocks), values = bytes_of(vector.values);
    const auto k = static_cast<int64_t>(values.size() / sizeof(float));
    std::vector<float> floats(static_cast<size_t>(k));
    std::memcpy(floats.data(), values.data(), values.size());
    const GgufRows rows = {.data = blocks.data(), .n = 1, .k = k, .format = vector.format};
    for (const mx::Dtype dtype : kDtypes) {
      std::vector<uint16_t> wanted;
      for (const float v : floats)
        wanted.push_back(dtype == mx::bfloat16 ? from_float<Bf16>(v).bits
                                               : from_float<F16>(v).bits);
      ASSERT_NO_FATAL_FAILURE(
          expect_values(pack_gguf_matrix(context, {&rows, 1}, dtype), wanted.data()));
    }
  }
}

TEST(CudaBlocks, OfGgufHaveTheCpusValues) {
  const Context context = cpu_context();
  for (const GgufFormat format : kGgufFormats) {
    if (is_affine_there(format)) continue;
    for (const auto& [n, k] : {std::pair(40, 512), {70, 416}}) {
      if (k % gguf_block(format).weights != 0) continue;
      SCOPED_TRACE(gguf_block(format).name);
      const auto s = gguf_source(n, k, format, 7);
      for (const mx::Dtype dtype : kDtypes)
        ASSERT_NO_FATAL_FAILURE(expect_values_of_cpu(context, [&](bool interleave) {
          return pack_gguf_matrix(context, {&s->rows, 1}, dtype, interleave);
        }));
    }
  }
}

TEST(CudaBlocks, OfAffineWeightsWithZeroPointsHaveTheCpusValues) {
  const Context context = cpu_context();
  std::mt19937 random(3);
  const int n = 40, k = 384;
  for (const int bits : {2, 3, 4, 8})
    for (const int group : {32, 64, 128})
      for (const mx::Dtype scale_dtype : kDtypes)
        for (const ZeroPoints zeros : {ZeroPoints::kSame, ZeroPoints::kBytes}) {
          SCOPED_TRACE(std::to_string(bits) + " bits in groups of " + std::to_string(group));
          std::vector<uint8_t> codes(static_cast<size_t>(n * k * bits / 8)),
              zero_points(static_cast<size_t>(n * k / group));
          for (uint8_t& byte : codes) byte = static_cast<uint8_t>(random());
          for (uint8_t& zero : zero_points) zero = static_cast<uint8_t>(random() % (1u << bits));
          const mx::array scales = random_array({n, k / group}, scale_dtype, 5);
          const AffineRows rows = {
              .values = codes.data(),
              .scales = scales.data<void>(),
              .biases = zeros == ZeroPoints::kBytes ? zero_points.data() : nullptr,
              .n = n,
              .k = k,
              .format = {.bits = bits,
                         .group_size = group,
                         .scale_dtype = scale_dtype,
                         .zeros = zeros,
                         .least_zero = zeros == ZeroPoints::kSame ? 1 << (bits - 1) : 1}};
          for (const mx::Dtype dtype : kDtypes)
            ASSERT_NO_FATAL_FAILURE(expect_values_of_cpu(context, [&](bool interleave) {
              return pack_affine_matrix(context, {&rows, 1}, dtype, interleave);
            }));
        }
}

// Rows of small floats with any codes and scales that leave float16 some room.
struct FloatRows {
  std::vector<uint8_t> codes, scales;
  std::vector<uint16_t> pairs;
  BlockFloatRows rows;

  FloatRows(int n, int k, BlockFloat format) {
    std::mt19937 random(9);
    const BlockFloatFormat f = block_float_format(format);
    codes.resize(static_cast<size_t>(n * k * f.bits / 8));
    for (uint8_t& code : codes) {
      code = static_cast<uint8_t>(random());
      if (f.bits == 8 && (code & 0x7F) == 0x7F) code ^= 1;  // NaN
    }
    const auto groups = static_cast<size_t>(n * ((k + f.group_size - 1) / f.group_size));
    std::uniform_real_distribution<float> size(0.001f, 0.01f);
    for (size_t i = 0; i < groups; ++i) {
      const float scale = i % 7 == 0 ? -size(random) : size(random);
      const auto* bytes = reinterpret_cast<const uint8_t*>(&scale);
      if (f.scale_bytes == 4)
        scales.insert(scales.end(), bytes, bytes + 4);
      else if (is_nf4(format))
        scales.push_back(static_cast<uint8_t>(random()));
      else
        scales.push_back(
            static_cast<uint8_t>(is_nvfp4(format) ? random() % 0x40 : 104 + random() % 19));
    }
    rows = {.values = codes.data(), .scales = scales.data(), .n = n, .k = k, .format = format};
    if (format == BlockFloat::kScaledNvfp4) rows.divisor = 7321.7f;
    if (format != BlockFloat::kNestedNf4) return;
    auto nested = std::make_shared<std::vector<float>>();
    for (int i = 0; i < 256; ++i) nested->push_back((static_cast<float>(i) - 127.0f) / 128.0f);
    for (int i = 0; i < 22; ++i) nested->push_back(0.31f + size(random));
    for (int i = 0; i < n * k / 128; ++i) pairs.push_back(static_cast<uint16_t>(random() % 11));
    rows.pairs = pairs.data();
    rows.nested = nested;
  }
};

TEST(CudaBlocks, OfSmallFloatsHaveTheCpusValues) {
  const Context context = cpu_context();
  for (const BlockFloat format :
       {BlockFloat::kMxfp4, BlockFloat::kMxfp8, BlockFloat::kNvfp4, BlockFloat::kScaledNvfp4,
        BlockFloat::kFloat8, BlockFloat::kNf4, BlockFloat::kNestedNf4}) {
    for (const int k : {512, 416, 384}) {
      if (k % (format == BlockFloat::kNestedNf4 ? 128
               : format == BlockFloat::kFloat8  ? 1
                                                : block_float_format(format).group_size))
        continue;
      SCOPED_TRACE(block_float_format(format).name + std::string(" of ") + std::to_string(k));
      const FloatRows s(40, k, format);
      for (const mx::Dtype dtype : kDtypes)
        ASSERT_NO_FATAL_FAILURE(expect_values_of_cpu(context, [&](bool interleave) {
          return pack_block_float_matrix(context, {&s.rows, 1}, dtype, interleave);
        }));
    }
  }
}

TEST(CudaBlocks, TakeTheCpusMemory) {
  const Context context = cpu_context();
  for (const GgufFormat format : kGgufFormats) {
    if (is_affine_there(format)) continue;
    const auto s = gguf_source(64, 1024, format, 7);
    const PackedMatrix packed = pack_gguf_matrix(context, {&s->rows, 1}, mx::bfloat16);
    EXPECT_EQ(Arranged(packed).layout.bytes(), static_cast<int64_t>(packed.nbytes()))
        << gguf_block(format).name;
  }
}

}  // namespace
}  // namespace quire::ops
