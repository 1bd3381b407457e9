#include "ops/linear/pack/cuda_blocks.h"

#include <algorithm>
#include <cstring>

#include "ops/linear/linear_blocks.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;
constexpr int64_t kStage = CudaWeightLayout::kStage;

CudaSource whole_numbers(int bits) {
  constexpr CudaSource kOfBits[] = {CudaSource::kInt2, CudaSource::kInt3, CudaSource::kInt4,
                                    CudaSource::kInt5, CudaSource::kInt6};
  return bits == 8 ? CudaSource::kInt8 : kOfBits[bits - 2];
}

CudaSource source_of(const QuantisedLayout& layout) {
  if (layout.gguf != GgufFormat::kNone && gguf_layout(layout.gguf).from_table)
    return CudaSource::kTable4;
  if (layout.block_float == BlockFloat::kNone) return whole_numbers(layout.bits);
  if (is_nf4(layout.block_float)) return CudaSource::kTable4;
  return layout.bits == 4 ? CudaSource::kFloat4 : CudaSource::kFloat8;
}

// The float32 scales of a block of kNestedNf4 (block_float.h), [2 groups][16 rows].
void widen_nested(const QuantisedLayout& layout, const uint8_t* block, uint8_t* out) {
  for (int64_t i = 0; i < 2 * kPanel; ++i) {
    uint16_t pair;
    std::memcpy(&pair, block + kNestedTailAt + i % kPanel * 2, sizeof(pair));
    const float* of_row = layout.nested + kNestedMap + 2 * static_cast<int64_t>(pair);
    const float product = layout.nested[block[i]] * of_row[0];
    const float scale = product + of_row[1];
    std::memcpy(out + 4 * i, &scale, sizeof(scale));
  }
}

void copy_scales(const QuantisedLayout& from, const uint8_t* block, const CudaWeightLayout& to,
                 uint8_t* out) {
  if (from.block_float == BlockFloat::kNestedNf4) return widen_nested(from, block, out);
  std::memcpy(out, block, static_cast<size_t>(to.block_scale_bytes));
}

// One row's codes of a stage, [64], into a stage of zeros.
void store_row(int bits, const uint8_t* codes, int row, uint32_t* stage) {
  for (int k = 0; k < kStage; ++k) {
    const StagePlace place = stage_place(row, k);
    uint32_t* plane_at = stage;
    int code = codes[k];
    for (int plane = 8; plane > 0; plane /= 2) {
      if ((bits & plane) == 0) continue;
      const int in_word = 16 / plane;  // pairs
      const auto part = static_cast<uint32_t>(code & ((1 << plane) - 1));
      const int shift = place.pair % in_word * plane + place.second * 16;
      plane_at[plane_word(plane, place.lane, place.pair / in_word)] |= part << shift;
      plane_at += plane * 32;
      code >>= plane;
    }
  }
}

}  // namespace

CudaWeightLayout cuda_block_layout(const QuantisedLayout& layout, FloatType type) {
  CudaWeightLayout result = {.n = layout.n,
                             .k = layout.k,
                             .type = type,
                             .interleaved = layout.interleaved,
                             .bits = layout.bits,
                             .group_size = layout.group_size,
                             .scale_type = layout.scale_type,
                             .block_source = source_of(layout),
                             .gguf = layout.gguf,
                             .block_float = layout.block_float,
                             .zeros = layout.zeros,
                             .least_zero = layout.least_zero,
                             .block_scale_bytes = static_cast<int>(layout.scale_bytes())};
  if (layout.block_float == BlockFloat::kNestedNf4) {
    result.block_float = BlockFloat::kNf4;
    result.block_scale_bytes = 2 * kPanel * 4;
  }
  if (result.block_source != CudaSource::kTable4) return result;
  for (int code = 0; code < 16; ++code)
    result.table[code] =
        layout.gguf == GgufFormat::kNone ? kNf4Values[code] : static_cast<float>(kIq4Values[code]);
  return result;
}

void arrange_cuda_panel(const QuantisedLayout& from, const void* packed, const CudaWeightLayout& to,
                        int64_t panel, void* out) {
  const auto* data = static_cast<const uint8_t*>(packed);
  auto* bytes = static_cast<uint8_t*>(out);
  uint8_t* codes_to = bytes + panel * to.panel_bytes();
  uint8_t* scales_to = bytes + to.scales_offset() + panel * to.panel_scale_bytes();
  std::memset(codes_to, 0, static_cast<size_t>(to.panel_bytes()));
  for (int64_t block = 0; block < from.blocks(); ++block) {
    const uint8_t* at = data + from.offset(panel, block);
    copy_scales(from, at, to, scales_to + block * to.block_scale_bytes);
    for (int64_t k = block * kBlock; k < std::min(to.padded_k(), (block + 1) * kBlock);
         k += kStage) {
      auto* stage = reinterpret_cast<uint32_t*>(codes_to + k / kStage * to.stage_bytes());
      for (int64_t row = 0; row < kPanel; ++row) {
        uint8_t codes[kStage];
        for (int64_t i = 0; i < kStage; ++i) codes[i] = from.code(at, row, k % kBlock + i);
        store_row(to.bits, codes, static_cast<int>(row), stage);
      }
    }
  }
}

}  // namespace quire::ops
