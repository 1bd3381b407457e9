#include "ops/linear/pack/affine_pack_cpu.h"

#include <cstring>

#include "ops/linear/pack/pack_codes.h"

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

// The scale of `group` of the layout and what is beside it, or zeros beyond the row's end.
void store_scale(const QuantisedLayout& layout, const AffineRow& source, int64_t block,
                 int64_t group, int64_t lane, uint8_t* out) {
  const AffinePart& part = *source.part;
  const int64_t k = block * kBlock + group * layout.group_size;
  const bool inside = k < layout.k;
  const int64_t at = source.row * (layout.k / part.group_size) + k / part.group_size;
  if (layout.scale_type == FloatType::kF32) {
    const WideScale wide = inside ? wide_scale(part, at) : WideScale{};
    uint8_t* to = out + (group * 2 * kPanel + lane) * 4;
    std::memcpy(to, &wide.scale, sizeof(wide.scale));
    std::memcpy(to + kPanel * 4, &wide.bias, sizeof(wide.bias));
    return;
  }
  uint16_t scale = 0, bias = 0;
  if (inside) std::memcpy(&scale, part.scales + 2 * at, sizeof(scale));
  if (layout.zeros != ZeroPoints::kNone) {
    const int64_t index = group * kPanel + lane;
    std::memcpy(out + 2 * index, &scale, sizeof(scale));
    if (inside && layout.zeros == ZeroPoints::kBytes)
      out[layout.zero_bytes_at() + index] = part.biases[at];
    return;
  }
  if (inside) std::memcpy(&bias, part.biases + 2 * at, sizeof(bias));
  const uint32_t both = static_cast<uint32_t>(scale) << 16 | bias;
  std::memcpy(out + (group * kPanel + lane) * 4, &both, sizeof(both));
}

}  // namespace

WideScale wide_scale(const AffinePart& part, int64_t at) {
  const float scale = read_float(part.scales, part.scale_type, at);
  if (part.zeros == ZeroPoints::kNone) return {scale, read_float(part.biases, part.scale_type, at)};
  const int zero = part.least_zero + (part.zeros == ZeroPoints::kBytes ? part.biases[at] : 0);
  return {scale, -static_cast<float>(zero) * scale};
}

void affine_pack_block_cpu(const QuantisedLayout& layout, const AffineRow (&rows)[kPanel],
                           int64_t block, uint8_t* out) {
  uint8_t q[kBlock];
  uint8_t wide[kPanel * kBlock];
  std::memset(out, 0, static_cast<size_t>(layout.block_bytes()));
  uint8_t* codes = out + layout.scale_bytes();
  if (layout.narrow_bits) std::memset(wide, 0, sizeof(wide));
  const int64_t begin = block * kBlock;
  const int64_t count = begin + kBlock <= layout.k ? kBlock : layout.k - begin;
  for (int64_t i = 0; i < kPanel; ++i) {
    if (!rows[i].part) continue;
    for (int64_t group = 0; group < layout.groups(); ++group)
      store_scale(layout, rows[i], block, group, i, out);
    unpack_codes(rows[i].values, rows[i].part->bits, begin, count, q);
    store_codes(layout, q, i, layout.narrow_bits ? wide : codes);
  }
  if (layout.narrow_bits) store_narrow(layout.narrow_bits, wide, codes);
}

}  // namespace quire::ops
