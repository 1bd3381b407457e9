#include "ops/linear/pack/affine_pack_cpu.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ops/linear/pack/pack_codes-inl.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;

float read_float(const uint8_t* from, FloatType type, int64_t index) {
  if (type == FloatType::kF32) {
    float x;
    std::memcpy(&x, from + 4 * index, sizeof(x));
    return x;
  }
  uint16_t bits;
  std::memcpy(&bits, from + 2 * index, sizeof(bits));
  return type == FloatType::kBf16 ? to_float(Bf16{bits}) : to_float(F16{bits});
}

// Where the scales of the layout's groups are in a row's part. Sizes of groups are powers of two.
class GroupIndex {
 public:
  GroupIndex(const QuantisedLayout& layout, const AffineRow& row, int64_t block)
      : first_(row.row * (layout.k >> shift(row.part->group_size))),
        begin_(block * kBlock),
        size_(layout.group_size),
        shift_(shift(row.part->group_size)) {}
  int64_t operator[](int64_t group) const { return first_ + ((begin_ + group * size_) >> shift_); }

 private:
  static int shift(int64_t size) { return std::countr_zero(static_cast<uint64_t>(size)); }

  int64_t first_, begin_, size_;
  int shift_;
};

// The scales of the first `count` groups and what is beside each.
void store_scales(const QuantisedLayout& layout, const AffineRow& row, int64_t block, int64_t count,
                  int64_t lane, uint8_t* out) {
  const AffinePart& part = *row.part;
  const GroupIndex at(layout, row, block);
  for (int64_t group = 0; group < count; ++group) {
    const int64_t index = group * kPanel + lane;
    if (layout.scale_type == FloatType::kF32) {
      const WideScale wide = wide_scale(part, at[group]);
      uint8_t* to = out + (group * 2 * kPanel + lane) * 4;
      std::memcpy(to, &wide.scale, sizeof(wide.scale));
      std::memcpy(to + kPanel * 4, &wide.bias, sizeof(wide.bias));
    } else if (layout.zeros != ZeroPoints::kNone) {
      std::memcpy(out + 2 * index, part.scales + 2 * at[group], 2);
      if (layout.zeros == ZeroPoints::kBytes)
        out[layout.zero_bytes_at() + index] = part.biases[at[group]];
    } else {  // (scale << 16 | bias)
      std::memcpy(out + 4 * index, part.biases + 2 * at[group], 2);
      std::memcpy(out + 4 * index + 2, part.scales + 2 * at[group], 2);
    }
  }
}

}  // namespace

WideScale wide_scale(const AffinePart& part, int64_t at) {
  const float scale = read_float(part.scales, part.scale_type, at);
  if (part.zeros == ZeroPoints::kNone) return {scale, read_float(part.biases, part.scale_type, at)};
  const int zero = part.least_zero + (part.zeros == ZeroPoints::kBytes ? part.biases[at] : 0);
  return {scale, -static_cast<float>(zero) * scale};
}

namespace {

// A plane of the narrow codes of a wide block, behind which the next one begins.
template <NarrowPlane kPlane>
uint8_t* pack_plane(const uint8_t* wide, int64_t lines, uint8_t* narrow) {
  for (int64_t line = 0; line < lines; line += kPlane.lines, narrow += kNarrowLine)
    for (int64_t at = 0; at < kNarrowLine; at += 16) {
      Bytes all = {};
      for (int i = 0; i < kPlane.lines; ++i) {
        const auto bits = load_vector<Bytes>(wide + (line + i) * kNarrowLine + at) &
                          static_cast<uint8_t>(kPlane.mask);
        const int higher = i * kPlane.step - kPlane.low;
        all |= higher < 0 ? bits >> -higher : bits << higher;
      }
      store_vector(all, narrow + at);
    }
  return narrow;
}

// The narrow codes of a wide block.
template <int kBits>
void pack_narrow(const uint8_t* wide, uint8_t* narrow) {
  constexpr NarrowFormat kFormat = narrow_format(kBits);
  constexpr int64_t kLines = kPanel * kBlock * kFormat.wide_bits / 8 / kNarrowLine;
  narrow = pack_plane<kFormat.planes[0]>(wide, kLines, narrow);
  if constexpr (kFormat.planes[1].mask != 0) pack_plane<kFormat.planes[1]>(wide, kLines, narrow);
}

template <int kBits>
void pack_codes(const QuantisedLayout& layout, const AffineRow (&rows)[kPanel], int64_t block,
                uint8_t* to) {
  const int64_t begin = block * kBlock, count = std::min(kBlock, layout.k - begin);
  PanelCodes<kBits> codes;
  for (int64_t i = 0; i < kPanel; ++i) {
    if (rows[i].part) {
      load_codes<kBits>(rows[i].values, rows[i].part->bits, begin, count, codes[i]);
    } else {
      std::memset(codes[i], 0, sizeof(codes[i]));
    }
  }
  if (!layout.narrow_bits) return store_codes<kBits>(layout, codes, to);
  uint8_t wide[sizeof(codes)];
  store_codes<kBits>(layout, codes, wide);
  if constexpr (kBits == 4) {
    layout.narrow_bits == 2 ? pack_narrow<2>(wide, to) : pack_narrow<3>(wide, to);
  } else {
    layout.narrow_bits == 5 ? pack_narrow<5>(wide, to) : pack_narrow<6>(wide, to);
  }
}

}  // namespace

void affine_pack_block_cpu(const QuantisedLayout& layout, const AffineRow (&rows)[kPanel],
                           int64_t block, uint8_t* out) {
  std::memset(out, 0, static_cast<size_t>(layout.scale_bytes()));
  const int64_t count =
      std::min(layout.groups(), layout.k / layout.group_size - block * layout.groups());
  for (int64_t i = 0; i < kPanel; ++i)
    if (rows[i].part) store_scales(layout, rows[i], block, count, i, out);
  uint8_t* codes = out + layout.scale_bytes();
  layout.bits == 4 ? pack_codes<4>(layout, rows, block, codes)
                   : pack_codes<8>(layout, rows, block, codes);
}

}  // namespace quire::ops
