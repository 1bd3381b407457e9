#include "ops/linear/pack/block_float_pack_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/linear/pack/pack_codes-inl.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;
constexpr uint64_t kOnes = 0x0101010101010101;  // a multiple of it is one byte eight times
constexpr uint8_t kFloat8Nan = 0x7F;

using Rows = BlockFloatRow[kPanel];

bool has_room(float size) { return size >= kLeastFloatScale && size <= kMostFloatScale; }

bool is_scale(float scale) { return scale == 0.0f || has_room(std::fabs(scale)); }

// Scales of one byte: `count` of each row from `first` on, each `higher` than it is stored. False
// if one is stored as more than `most`.
bool pack_byte_scales(const Rows& rows, int64_t first, int64_t count, int most, int higher,
                      uint8_t* out) {
  uint8_t there[kPanel];
  for (int64_t i = 0; i < kPanel; ++i) {
    there[i] = rows[i].part ? 255 : 0;
    for (int64_t group = 0; group < count; ++group)
      out[group * kPanel + i] = rows[i].part ? rows[i].scales[first + group] : 0;
  }
  const auto add = load_vector<Bytes>(there) & static_cast<uint8_t>(higher);
  Bytes bad = {};
  for (int64_t group = 0; group < count; ++group) {
    const auto stored = load_vector<Bytes>(out + group * kPanel);
    bad |= reinterpret_cast<Bytes>(stored > static_cast<uint8_t>(most));
    store_vector(stored + add, out + group * kPanel);
  }
  const Pair both = reinterpret_cast<Pair>(bad);
  return (both[0] | both[1]) == 0;
}

// Scales of float32, `factor` times what is stored.
bool pack_float_scales(const Rows& rows, int64_t first, int64_t count, float factor, uint8_t* out) {
  bool good = true;
  for (int64_t i = 0; i < kPanel; ++i)
    for (int64_t group = 0; rows[i].part && group < count; ++group) {
      float scale;
      std::memcpy(&scale, rows[i].scales + 4 * (first + group), sizeof(scale));
      good &= is_scale(scale);
      scale *= factor;
      std::memcpy(out + 4 * (group * kPanel + i), &scale, sizeof(scale));
    }
  return good;
}

bool pack_tail(const BlockFloatPart& part, uint8_t* tail) {
  const float of_tensor[2] = {part.multiplier, part.divisor};
  std::memcpy(tail, of_tensor, sizeof(of_tensor));
  return has_room(part.multiplier) && has_room(part.divisor);
}

// Which pair each row has in a block. False if no scale comes of one, and of the bytes at `scales`.
bool pack_pairs_of_rows(const Rows& rows, int64_t block, const uint8_t* scales, uint8_t* out) {
  bool good = true;
  for (int64_t i = 0; i < kPanel; ++i) {
    if (!rows[i].part) continue;
    uint16_t pair;
    std::memcpy(&pair, rows[i].pairs + 2 * block, sizeof(pair));
    const BlockFloatPart& part = *rows[i].part;
    const float* of_row = part.nested + kNestedMap + 2 * static_cast<int64_t>(pair);
    for (int64_t group = 0; group < 2; ++group)
      good &= is_scale(part.nested[scales[group * kPanel + i]] * of_row[0] + of_row[1]);
    const auto packed = static_cast<uint16_t>(part.first_pair + pair);
    std::memcpy(out + 2 * i, &packed, sizeof(packed));
  }
  return good;
}

// `count` groups of each row from `first` on, and what the layout has behind them.
bool pack_scales(const QuantisedLayout& layout, const Rows& rows, int64_t block, int64_t count,
                 uint8_t* out) {
  const int64_t first = block * layout.groups();
  switch (layout.block_float) {
    case BlockFloat::kMxfp4:
      return pack_byte_scales(rows, first, count, kMostScaleByte, kMxfp4ExponentOffset, out);
    case BlockFloat::kMxfp8:
      return pack_byte_scales(rows, first, count, kMostScaleByte, kMxfp8ExponentOffset, out);
    case BlockFloat::kNvfp4:
      return pack_byte_scales(rows, first, count, kFloat8Nan - 1, 0, out);  // no sign either
    case BlockFloat::kScaledNvfp4:
      return pack_byte_scales(rows, first, count, kFloat8Nan - 1, 0, out) &
             pack_tail(*rows[0].part, out + kNvfp4TailAt);
    case BlockFloat::kFloat8:
      return pack_float_scales(rows, first, count, kFloat8ScaleFactor, out);
    case BlockFloat::kNf4:
      return pack_float_scales(rows, first, count, 1, out);
    case BlockFloat::kNestedNf4:
      return pack_byte_scales(rows, first, count, 255, 0, out) &&
             pack_pairs_of_rows(rows, block, out, out + kNestedTailAt);
    case BlockFloat::kNone:
      break;
  }
  return false;
}

// Half of 2^-127, the least value, is no bfloat16 and too little for kernels that add to exponents:
// it counts as zero, and is packed as one of its sign.
void drop_least_values(uint8_t (&codes)[64], const uint8_t* scales, int64_t count) {
  for (int64_t group = 0; group < count; ++group) {
    if (scales[group * kPanel] != kMxfp4ExponentOffset) continue;
    for (int64_t at = 16 * group; at < 16 * group + 16; at += 8) {
      uint64_t eight;
      std::memcpy(&eight, codes + at, sizeof(eight));
      eight ^= eight & ~(eight >> 1) & ~(eight >> 2) & kOnes * 0x11;  // 1 and 9
      std::memcpy(codes + at, &eight, sizeof(eight));
    }
  }
}

bool has_nan(const uint8_t (&codes)[128]) {
  uint64_t found = 0;
  for (int64_t at = 0; at < kBlock; at += 8) {
    uint64_t eight;
    std::memcpy(&eight, codes + at, sizeof(eight));
    found |= (eight & kOnes * 0x7F) + kOnes;  // only 0x7F reaches the highest bit
  }
  return (found & kOnes * 0x80) != 0;
}

// Behind `scales`, which are packed.
template <int kBits>
bool pack_codes(const QuantisedLayout& layout, const Rows& rows, int64_t begin, int64_t count,
                uint8_t* scales) {
  bool good = true;
  PanelCodes<kBits> codes;
  for (int64_t i = 0; i < kPanel; ++i) {
    if (!rows[i].part) {
      std::memset(codes[i], 0, sizeof(codes[i]));
      continue;
    }
    load_codes<kBits>(rows[i].values, kBits, begin, count, codes[i]);
    if constexpr (kBits == 8) good &= !has_nan(codes[i]);
    if constexpr (kBits == 4)
      if (layout.block_float == BlockFloat::kMxfp4)
        drop_least_values(codes[i], scales + i, count / layout.group_size);
  }
  store_codes<kBits>(layout, codes, scales + layout.scale_bytes());
  return good;
}

}  // namespace

bool block_float_pack_block_cpu(const QuantisedLayout& layout, const Rows& rows, int64_t block,
                                uint8_t* out) {
  const int64_t begin = block * kBlock, count = std::min(kBlock, layout.k - begin);
  ask_for(out, layout.block_bytes());
  std::memset(out, 0, static_cast<size_t>(layout.scale_bytes()));
  const int64_t groups = (count + layout.group_size - 1) / layout.group_size;
  const bool good = pack_scales(layout, rows, block, groups, out);
  return (layout.bits == 4 ? pack_codes<4>(layout, rows, begin, count, out)
                           : pack_codes<8>(layout, rows, begin, count, out)) &&
         good;
}

}  // namespace quire::ops
