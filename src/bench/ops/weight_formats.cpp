#include "bench/ops/weight_formats.h"

#include <cstring>
#include <vector>

#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/block_float_matrix.h"
#include "ops/linear/pack/gguf_matrix.h"

namespace quire::bench {
namespace {

// Any bits are integers: those of the rows. Scales and biases (groups of 64) are like a model's,
// small, and the biases are what the smallest integers mean, about half the range below zero.
template <int kBits, bool kInt8Activations = false>
ops::LinearWeight make_affine(const ops::Context& context, const mx::array& rows, bool interleave) {
  const int n = rows.shape(0), groups = rows.shape(1) / 64;
  const mx::array scales = mx::contiguous(
      (mx::abs(mx::slice(rows, {0, 0}, {n, groups})) + mx::array(0.125f, mx::bfloat16)) *
      mx::array(0x1p-8f, mx::bfloat16));
  const mx::array biases = scales * mx::array(-static_cast<float>(1 << (kBits - 1)), mx::bfloat16);
  mx::eval(scales, biases);
  const ops::AffineRows source = {.values = rows.data<void>(),
                                  .scales = scales.data<void>(),
                                  .biases = biases.data<void>(),
                                  .n = rows.shape(0),
                                  .k = rows.shape(1),
                                  .format = {.bits = kBits,
                                             .group_size = 64,
                                             .scale_dtype = mx::bfloat16,
                                             .int8_activations = kInt8Activations}};
  return {.weight = ops::pack_affine_matrix(context, {&source, 1}, mx::bfloat16, interleave)};
}

// Any bits but those of NaN are codes: the rows' without the last of an exponent. Scales are
// near 1.
template <ops::BlockFloat kFormat, bool kInt8Activations = false>
ops::LinearWeight make_block_float(const ops::Context& context, const mx::array& rows,
                                   bool interleave) {
  const ops::BlockFloatFormat format = ops::block_float_format(kFormat);
  std::vector<uint8_t> codes(rows.size() * static_cast<size_t>(format.bits) / 8);
  const auto* bits = static_cast<const uint8_t*>(rows.data<void>());
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = bits[i] & 0xF7;
  constexpr uint8_t kScale = kFormat == ops::BlockFloat::kNvfp4 ? 0x38 : 127;
  const std::vector<uint8_t> scales(rows.size() / static_cast<size_t>(format.group_size), kScale);
  const ops::BlockFloatRows source = {.values = codes.data(),
                                      .scales = scales.data(),
                                      .n = rows.shape(0),
                                      .k = rows.shape(1),
                                      .format = kFormat,
                                      .int8_activations = kInt8Activations};
  return {.weight = ops::pack_block_float_matrix(context, {&source, 1}, mx::bfloat16, interleave)};
}

// Any bits are codes and small scales. float16 scales are near 2^-12, those of minima near 2^-10,
// as those of models are.
template <ops::GgufFormat kFormat>
constexpr size_t kScaleAt = kFormat == ops::GgufFormat::kQ2_K   ? 80
                            : kFormat == ops::GgufFormat::kQ3_K ? 108
                            : kFormat == ops::GgufFormat::kQ6_K ? 208
                                                                : 0;
template <ops::GgufFormat kFormat, bool kInt8Activations = false>
ops::LinearWeight make_gguf(const ops::Context& context, const mx::array& rows, bool interleave) {
  const int n = rows.shape(0), k = rows.shape(1);
  std::vector<uint8_t> blocks(static_cast<size_t>(n * ops::gguf_row_bytes(kFormat, k)));
  const auto* bits = static_cast<const uint8_t*>(rows.data<void>());
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = bits[i] & 0xBF;
  const auto set_scale = [&](size_t at, uint16_t exponent) {
    const auto half = static_cast<uint16_t>(exponent << 10 | blocks[at]);
    std::memcpy(&blocks[at], &half, sizeof(half));
  };
  for (size_t at = 0; at < blocks.size(); at += ops::gguf_block(kFormat).bytes) {
    const size_t d = at + kScaleAt<kFormat>;
    set_scale(d, 3);
    if (ops::gguf_layout(kFormat).has_min) set_scale(d + 2, 5);
  }
  const ops::GgufRows source = {.data = blocks.data(),
                                .n = n,
                                .k = k,
                                .format = kFormat,
                                .int8_activations = kInt8Activations};
  return {.weight = ops::pack_gguf_matrix(context, {&source, 1}, mx::bfloat16, interleave)};
}

constexpr WeightFormat kFormats[] = {
    {"bf16", make_bf16},
    {"affine8", make_affine<8>},
    {"affine6", make_affine<6>},
    {"affine5", make_affine<5>},
    {"affine4", make_affine<4>},
    {"affine3", make_affine<3>},
    {"affine2", make_affine<2>},
    {"affine8_int8", make_affine<8, true>},
    {"affine4_int8", make_affine<4, true>},
    {"mxfp4", make_block_float<ops::BlockFloat::kMxfp4>},
    {"mxfp8", make_block_float<ops::BlockFloat::kMxfp8>},
    {"nvfp4", make_block_float<ops::BlockFloat::kNvfp4>},
    {"mxfp4_int8", make_block_float<ops::BlockFloat::kMxfp4, true>},
    {"nvfp4_int8", make_block_float<ops::BlockFloat::kNvfp4, true>},
    {"q4_0", make_gguf<ops::GgufFormat::kQ4_0>},
    {"q5_0", make_gguf<ops::GgufFormat::kQ5_0>},
    {"q8_0", make_gguf<ops::GgufFormat::kQ8_0>},
    {"q2_k", make_gguf<ops::GgufFormat::kQ2_K>},
    {"q3_k", make_gguf<ops::GgufFormat::kQ3_K>},
    {"q4_k", make_gguf<ops::GgufFormat::kQ4_K>},
    {"q5_k", make_gguf<ops::GgufFormat::kQ5_K>},
    {"q6_k", make_gguf<ops::GgufFormat::kQ6_K>},
    {"iq4_xs", make_gguf<ops::GgufFormat::kIq4Xs>},
    {"q8_0_int8", make_gguf<ops::GgufFormat::kQ8_0, true>},
    {"q4_k_int8", make_gguf<ops::GgufFormat::kQ4_K, true>},
    {"q6_k_int8", make_gguf<ops::GgufFormat::kQ6_K, true>}};

}  // namespace

ops::LinearWeight make_bf16(const ops::Context& context, const mx::array& rows, bool interleave) {
  const ops::RowMatrix source = {
      .data = rows.data<void>(), .n = rows.shape(0), .k = rows.shape(1), .dtype = mx::bfloat16};
  return {.weight = ops::pack_matrix(context, {&source, 1}, mx::bfloat16, interleave)};
}

std::span<const WeightFormat> weight_formats() { return kFormats; }

}  // namespace quire::bench
