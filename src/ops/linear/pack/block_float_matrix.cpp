#include "ops/linear/pack/block_float_matrix.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/cuda/has_cuda.h"
#include "ops/linear/linear_format.h"
#include "ops/linear/mlx_matrix.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/cuda_matrix.h"
#include "ops/linear/pack/pack_codes.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;
constexpr uint8_t kFloat8Nan = 0x7F;

[[noreturn]] void refuse(BlockFloat format, const std::string& what) {
  throw std::invalid_argument(std::string("pack_block_float_matrix: ") +
                              block_float_format(format).name + ": " + what);
}

// A stored scale as it is packed; false if it is none.
bool pack_scale(BlockFloat format, uint8_t stored, uint8_t& packed) {
  if (is_nvfp4(format)) {
    packed = stored;
    return stored < kFloat8Nan;  // no sign either
  }
  packed = static_cast<uint8_t>(
      stored + (format == BlockFloat::kMxfp4 ? kMxfp4ExponentOffset : kMxfp8ExponentOffset));
  return stored <= kMostScaleByte;
}

bool has_room(float size) { return size >= kLeastFloatScale && size <= kMostFloatScale; }

bool is_scale(float scale) { return scale == 0.0f || has_room(std::fabs(scale)); }

bool pack_float_scale(BlockFloat format, const uint8_t* stored, uint8_t* packed) {
  float scale;
  std::memcpy(&scale, stored, sizeof(scale));
  const float wide = format == BlockFloat::kFloat8 ? scale * kFloat8ScaleFactor : scale;
  std::memcpy(packed, &wide, sizeof(wide));
  return is_scale(scale);
}

// Those of row i of a panel, in a block with `count` groups.
bool pack_scales(const QuantisedLayout& layout, const uint8_t* stored, int64_t count, int64_t i,
                 uint8_t* out) {
  bool good = true;
  for (int64_t group = 0; group < count; ++group) {
    const int64_t at = group * kPanel + i;
    if (layout.block_float == BlockFloat::kFloat8 || layout.block_float == BlockFloat::kNf4) {
      good &= pack_float_scale(layout.block_float, stored + 4 * group, out + 4 * at);
    } else if (layout.block_float == BlockFloat::kNestedNf4) {
      out[at] = stored[group];  // pack_pair() sees what comes of it
    } else {
      good &= pack_scale(layout.block_float, stored[group], out[at]);
    }
  }
  return good;
}

// What all rows of a panel share; false if it is no scale.
bool pack_tail(const BlockFloatRows& part, uint8_t* tail) {
  const float of_tensor[2] = {part.multiplier, part.divisor};
  std::memcpy(tail, of_tensor, sizeof(of_tensor));
  return has_room(part.multiplier) && has_room(part.divisor);
}

// Which pair row i of a panel has in a block; false if no scale comes of it. `first`: those of the
// parts before.
bool pack_pair(const BlockFloatRows& part, int64_t first, const uint8_t* stored, int64_t i,
               uint8_t* out) {
  uint16_t pair;
  std::memcpy(&pair, stored, sizeof(pair));
  const float* nested = part.nested->data();
  const float* of_row = nested + kNestedMap + 2 * static_cast<int64_t>(pair);
  bool good = true;
  for (int64_t group = 0; group < 2; ++group)
    good &= is_scale(nested[out[group * kPanel + i]] * of_row[0] + of_row[1]);
  const auto packed = static_cast<uint16_t>(first + pair);
  std::memcpy(out + kNestedTailAt + i * static_cast<int64_t>(sizeof(packed)), &packed,
              sizeof(packed));
  return good;
}

int64_t num_pairs(const std::vector<float>& nested) {
  return (static_cast<int64_t>(nested.size()) - kNestedMap) / 2;
}

// The maps and pairs of all parts, each once: rows of one tensor share them.
std::vector<const std::vector<float>*> distinct_nested(std::span<const BlockFloatRows> parts) {
  std::vector<const std::vector<float>*> all;
  for (const BlockFloatRows& part : parts)
    if (std::ranges::find(all, part.nested.get()) == all.end()) all.push_back(part.nested.get());
  return all;
}

// The pairs before those of `nested`; of all if it is null.
int64_t first_pair(std::span<const BlockFloatRows> parts, const std::vector<float>* nested) {
  int64_t first = 0;
  for (const std::vector<float>* one : distinct_nested(parts)) {
    if (one == nested) break;
    first += num_pairs(*one);
  }
  return first;
}

// What all rows have behind the panels, in float32.
std::vector<float> nested_of(std::span<const BlockFloatRows> parts) {
  if (parts.front().format != BlockFloat::kNestedNf4) return {};
  std::vector<float> all(parts.front().nested->begin(), parts.front().nested->begin() + kNestedMap);
  for (const std::vector<float>* one : distinct_nested(parts))
    all.insert(all.end(), one->begin() + kNestedMap, one->end());
  return all;
}

// Half of 2^-127, the least value, is no bfloat16 and too little for kernels that add to exponents:
// it counts as zero, and is packed as one of its sign.
void drop_least_values(uint8_t scale, uint8_t* codes, int64_t count) {
  if (scale != kMxfp4ExponentOffset) return;
  for (int64_t i = 0; i < count; ++i)
    if ((codes[i] & 7) == 1) codes[i] &= 8;
}

bool has_nan(BlockFloat format, const uint8_t* codes) {
  if (format != BlockFloat::kMxfp8 && format != BlockFloat::kFloat8) return false;
  for (int64_t i = 0; i < kBlock; ++i)
    if ((codes[i] & 0x7F) == kFloat8Nan) return true;
  return false;
}

// Writes one panel of the matrix at `data`. Returns false if it holds what is no weight.
bool pack_panel(const QuantisedLayout& layout, std::span<const BlockFloatRows> parts,
                const SourceRows& rows, int64_t panel, uint8_t* data) {
  const int64_t size = layout.group_size, groups = (layout.k + size - 1) / size;
  const int64_t scale_bytes = block_float_format(layout.block_float).scale_bytes;
  uint8_t codes[kBlock];
  std::vector<int64_t> first_pairs;
  if (layout.block_float == BlockFloat::kNestedNf4)
    for (const BlockFloatRows& part : parts)
      first_pairs.push_back(first_pair(parts, part.nested.get()));
  bool good = true;
  for (int64_t block = 0; block < layout.blocks(); ++block) {
    uint8_t* out = data + layout.offset(panel, block);
    std::memset(out, 0, static_cast<size_t>(layout.block_bytes()));
    const int64_t begin = block * kBlock, count = std::min(kBlock, layout.k - begin);
    for (int64_t i = 0; i < kPanel; ++i) {
      const int64_t row = layout.source_row(panel * kPanel + i);
      if (row < 0) continue;
      const SourceRows::Row from = rows.find(row);
      const BlockFloatRows& part = parts[from.part];
      const auto* scales = static_cast<const uint8_t*>(part.scales) +
                           (from.row * groups + begin / size) * scale_bytes;
      good &= pack_scales(layout, scales, (count + size - 1) / size, i, out);
      if (layout.block_float == BlockFloat::kScaledNvfp4)
        good &= pack_tail(part, out + kNvfp4TailAt);
      if (layout.block_float == BlockFloat::kNestedNf4)
        good &= pack_pair(
            part, first_pairs[from.part],
            static_cast<const uint8_t*>(part.pairs) + 2 * (from.row * layout.blocks() + block), i,
            out);
      unpack_codes(reinterpret_cast<const uint8_t*>(from.data), layout.bits, begin, count, codes);
      good &= !has_nan(layout.block_float, codes);
      if (layout.block_float == BlockFloat::kMxfp4)
        for (int64_t k = 0; k < count; k += size)
          drop_least_values(out[k / size * kPanel + i], codes + k, size);
      store_codes(layout, codes, i, out + layout.scale_bytes());
    }
  }
  return good;
}

// Checks the parts and says what they become.
PackedMatrix describe(std::span<const BlockFloatRows> parts, mx::Dtype dtype, bool interleave) {
  PackedMatrix result;
  result.dtype = dtype;
  result.interleaved = interleave;
  result.int8_activations = !parts.empty() && parts[0].int8_activations;
  for (const BlockFloatRows& part : parts) {
    if (result.block_float == BlockFloat::kNone)
      result.block_float = part.format, result.k = part.k;
    if (part.format != result.block_float || part.k != result.k)
      refuse(part.format, "parts of different formats or numbers of columns");
    if (part.int8_activations != result.int8_activations)
      refuse(part.format, "parts with and without 8-bit activations");
    result.n += part.n;
  }
  if (result.block_float == BlockFloat::kNone) refuse(BlockFloat::kNone, "no parts");
  if (result.block_float != BlockFloat::kFloat8 &&
      result.k % block_float_format(result.block_float).group_size != 0)
    refuse(result.block_float, "groups do not divide " + std::to_string(result.k) + " columns");
  if (result.block_float == BlockFloat::kNestedNf4 && result.k % kBlock != 0)
    refuse(result.block_float, "128 do not divide " + std::to_string(result.k) + " columns");
  if (!go_together(parts, interleave)) refuse(result.block_float, "parts do not go together");
  if (interleave && result.n % 2 != 0)
    refuse(result.block_float, "an odd number of rows cannot be interleaved");
  return result;
}

}  // namespace

bool go_together(std::span<const BlockFloatRows> parts, bool interleave) {
  if (parts.empty()) return true;
  if (parts.front().format == BlockFloat::kNestedNf4) {
    const auto same_map = [&](const BlockFloatRows& part) {
      return std::equal(part.nested->begin(), part.nested->begin() + kNestedMap,
                        parts.front().nested->begin());
    };
    return std::ranges::all_of(parts, same_map) && first_pair(parts, nullptr) <= kMostNestedPairs;
  }
  int64_t n = 0;
  for (const BlockFloatRows& part : parts) n += part.n;
  int64_t row = 0;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    row += parts[i].n;
    const BlockFloatRows &a = parts[i], &b = parts[i + 1];
    const bool edge = interleave ? row == n / 2 : row % kPanel == 0;
    if (!edge && (a.multiplier != b.multiplier || a.divisor != b.divisor)) return false;
  }
  return true;
}

PackedMatrix pack_block_float_matrix(const Context& context, std::span<const BlockFloatRows> parts,
                                     mx::Dtype dtype, bool interleave,
                                     const PackProgress& progress) {
  check_float("pack_block_float_matrix", "the packed matrix", dtype);
  PackedMatrix result = describe(parts, dtype, interleave);
  if (result.int8_activations && (!is_e2m1(result.block_float) || !context.device->host_memory()))
    refuse(result.block_float, "no kernel for 8-bit activations");
  if constexpr (kHasCuda)
    if (CudaDevice* cuda = context.device->cuda())
      return blocks_on_cuda(
          *cuda, context,
          pack_block_float_matrix(on_host(context), parts, dtype, interleave, progress));
  if (context.device->metal() && mlx_mode(result.block_float))
    return mlx_matrix(context, parts, result, progress);
  if (context.device->metal())
    return pack_values(
        context,
        pack_block_float_matrix(on_host(context), parts, dtype, /*interleave=*/false, progress),
        interleave);
  result.turned = packs_turned(linear_format(result, dtype));
  const QuantisedLayout layout = quantised_layout(result);
  const std::vector<float> nested = nested_of(parts);
  const auto memory =
      context.device->allocate(static_cast<size_t>(layout.bytes()) + nested.size() * sizeof(float));
  std::ranges::copy(std::as_bytes(std::span(nested)), memory.get() + layout.bytes());
  PackJob job = {.interleaved = interleave};
  for (const BlockFloatRows& part : parts)
    job.parts.push_back(
        {.rows = part.n, .row_bytes = result.k * layout.bits / 8, .data = part.values});
  std::atomic<bool> good = true;
  pack_pairs(*context.pool, job, progress, [&](int64_t begin, int64_t end, const SourceRows& rows) {
    for (int64_t panel = begin; panel < end; ++panel)
      if (!pack_panel(layout, parts, rows, panel, reinterpret_cast<uint8_t*>(memory.get())))
        good = false;
  });
  if (!good)
    refuse(result.block_float,
           "a scale or a weight is NaN, or a scale is negative, too large or too small");
  result.data = memory;
  return result;
}

}  // namespace quire::ops
