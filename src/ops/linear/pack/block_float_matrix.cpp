#include "ops/linear/pack/block_float_matrix.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "ops/cuda/has_cuda.h"
#include "ops/linear/linear_format.h"
#include "ops/linear/mlx_matrix.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/block_float_pack_cpu.h"
#include "ops/linear/pack/cuda_matrix.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;
[[noreturn]] void refuse(BlockFloat format, const std::string& what) {
  throw std::invalid_argument(std::string("pack_block_float_matrix: ") +
                              block_float_format(format).name + ": " + what);
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

std::vector<BlockFloatPart> parts_of(std::span<const BlockFloatRows> rows) {
  std::vector<BlockFloatPart> parts;
  for (const BlockFloatRows& part : rows) {
    parts.push_back({.multiplier = part.multiplier, .divisor = part.divisor});
    if (part.format != BlockFloat::kNestedNf4) continue;
    parts.back().nested = part.nested->data();
    parts.back().first_pair = first_pair(rows, part.nested.get());
  }
  return parts;
}

// Where the scales of a row are, and its pairs.
BlockFloatRow row_of(const QuantisedLayout& layout, const BlockFloatRows& rows,
                     const BlockFloatPart& part, const SourceRows::Row& row) {
  const int64_t groups = (layout.k + layout.group_size - 1) / layout.group_size;
  const int64_t scale_bytes = block_float_format(layout.block_float).scale_bytes;
  BlockFloatRow out = {
      .part = &part,
      .values = reinterpret_cast<const uint8_t*>(row.data),
      .scales = static_cast<const uint8_t*>(rows.scales) + row.row * groups * scale_bytes};
  if (layout.block_float == BlockFloat::kNestedNf4)
    out.pairs = static_cast<const uint8_t*>(rows.pairs) + 2 * row.row * layout.blocks();
  return out;
}

// Packs all panels at `data`. Returns false if there is what is no weight.
bool pack_panels(ThreadPool& pool, const QuantisedLayout& layout,
                 std::span<const BlockFloatRows> parts, const PackProgress& progress,
                 uint8_t* data) {
  PackJob job = {.interleaved = layout.interleaved};
  for (const BlockFloatRows& part : parts)
    job.parts.push_back(
        {.rows = part.n, .row_bytes = layout.k * layout.bits / 8, .data = part.values});
  const std::vector<BlockFloatPart> shared = parts_of(parts);
  std::atomic<bool> good = true;
  pack_pairs(pool, job, progress, [&](int64_t begin, int64_t end, const SourceRows& rows) {
    BlockFloatRow of_panel[2][kPanel];
    for (int64_t i = begin * kPanel; i < end * kPanel; ++i) {
      const int64_t row = layout.source_row(i);
      if (row < 0) continue;
      const SourceRows::Row found = rows.find(row);
      of_panel[i / kPanel - begin][i % kPanel] =
          row_of(layout, parts[found.part], shared[found.part], found);
    }
    for (int64_t block = 0; block < layout.blocks(); ++block)
      for (int64_t panel = begin; panel < end; ++panel)
        if (!block_float_pack_block_cpu(layout, of_panel[panel - begin], block,
                                        data + layout.offset(panel, block)))
          good = false;
  });
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
  if (!pack_panels(*context.pool, layout, parts, progress,
                   reinterpret_cast<uint8_t*>(memory.get())))
    refuse(result.block_float,
           "a scale or a weight is NaN, or a scale is negative, too large or too small");
  result.data = memory;
  return result;
}

}  // namespace quire::ops
