#include "ops/linear/pack/cuda_blocks.h"

#include <algorithm>
#include <cstring>

#include "ops/linear/cuda/linear_blocks.h"

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

CudaBlockArrangement::CudaBlockArrangement(const QuantisedLayout& from, FloatType type)
    : from_(from), to_(cuda_block_layout(from, type)) {
  int from_byte = 0, first_word = 0;  // of the plane
  for (int plane = 8; plane > 0; plane /= 2) {
    if ((from.bits & plane) == 0) continue;
    add_moves(plane, from_byte, first_word);
    from_byte += 256 * plane;
    first_word += 32 * plane;
  }
}

// A plane of the CPU's block is a plane of the GPU's, in another order.
void CudaBlockArrangement::add_moves(int plane, int from_byte, int first_word) {
  const int in_word = 16 / plane;  // pairs
  for (int k = 0; k < kBlock; ++k)
    for (int row = 0; row < kPanel; ++row) {
      const auto [byte, shift] = from_.has_planes() ? gguf_plane_place(plane, from_.turned, row, k)
                                                    : from_.code_place(row, k);
      const StagePlace to = stage_place(row, k % kStage);
      const int word = first_word + plane_word(plane, to.lane, to.pair / in_word);
      moves_[k / kStage].push_back(
          {.byte = static_cast<uint16_t>(from_byte + byte),
           .word = static_cast<uint16_t>(word),
           .from_shift = static_cast<uint8_t>(shift),
           .to_shift = static_cast<uint8_t>(to.pair % in_word * plane + to.second * 16),
           .mask = static_cast<uint8_t>((1 << plane) - 1)});
    }
}

void CudaBlockArrangement::arrange(const void* packed, int64_t panel, void* out) const {
  const auto* data = static_cast<const uint8_t*>(packed);
  auto* bytes = static_cast<uint8_t*>(out);
  uint8_t* codes_to = bytes + panel * to_.panel_bytes();
  uint8_t* scales_to = bytes + to_.scales_offset() + panel * to_.panel_scale_bytes();
  std::memset(codes_to, 0, static_cast<size_t>(to_.panel_bytes()));
  const int64_t stages = to_.padded_k() / kStage;
  uint8_t wide[kPanel * kBlock];
  for (int64_t block = 0; block < from_.blocks(); ++block) {
    const uint8_t* at = data + from_.offset(panel, block);
    copy_scales(from_, at, to_, scales_to + block * to_.block_scale_bytes);
    const uint8_t* codes = at + from_.scale_bytes();
    if (from_.narrow_bits) {
      for (int64_t i = 0; i < kPanel * kBlock * from_.bits / 8; ++i)
        wide[i] = wide_byte(from_.narrow_bits, codes, i);
      codes = wide;
    }
    for (int64_t stage = 2 * block; stage < std::min(stages, 2 * block + 2); ++stage) {
      auto* words = reinterpret_cast<uint32_t*>(codes_to + stage * to_.stage_bytes());
      for (const Move& m : moves_[stage % 2])
        words[m.word] |= static_cast<uint32_t>(codes[m.byte] >> m.from_shift & m.mask)
                         << m.to_shift;
    }
  }
}

}  // namespace quire::ops
