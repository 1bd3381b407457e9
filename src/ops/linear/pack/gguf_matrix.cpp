#include "ops/linear/pack/gguf_matrix.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "base/check.h"
#include "ops/cuda/has_cuda.h"
#include "ops/linear/linear_format.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/cuda_matrix.h"
#include "ops/linear/pack/gguf_as_mlx.h"
#include "ops/linear/pack/gguf_pack_cpu.h"
#include "ops/linear/pack/pack_slices.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;

[[noreturn]] void refuse(GgufFormat format, const std::string& what) {
  throw std::invalid_argument(std::string("pack_gguf_matrix: ") + gguf_block(format).name + ": " +
                              what);
}

// Writes the panels [begin, end), which are one or a pair, of the matrix at `data`, in the order of
// memory. Returns false if they hold what is no weight.
bool pack_pair(const QuantisedLayout& layout, const SourceRows& rows, int64_t begin, int64_t end,
               uint8_t* data) {
  const uint8_t* of_panel[2][kPanel] = {};
  for (int64_t panel = begin; panel < end; ++panel) {
    for (int64_t i = 0; i < kPanel; ++i) {
      const int64_t row = layout.source_row(panel * kPanel + i);
      if (row >= 0)
        of_panel[panel - begin][i] = reinterpret_cast<const uint8_t*>(rows.find(row).data);
    }
  }
  bool good = true;
  for (int64_t block = 0; block < layout.blocks(); ++block)
    for (int64_t panel = begin; panel < end; ++panel)
      good &= gguf_pack_block_cpu(layout, of_panel[panel - begin], block * kBlock,
                                  data + layout.offset(panel, block));
  return good;
}

// Packs all panels at `data`. Returns false if there is what is no weight.
bool pack_panels(ThreadPool& pool, const QuantisedLayout& layout, std::span<const GgufRows> parts,
                 const PackProgress& progress, uint8_t* data) {
  QUIRE_CHECK(gguf_block(layout.gguf).weights > 0) << "not a format of blocks";
  PackJob job = {.interleaved = layout.interleaved};
  for (const GgufRows& part : parts)
    job.parts.push_back(
        {.rows = part.n, .row_bytes = gguf_row_bytes(layout.gguf, layout.k), .data = part.data});
  std::atomic<bool> good = true;
  pack_pairs(pool, job, progress, [&](int64_t begin, int64_t end, const SourceRows& rows) {
    if (!pack_pair(layout, rows, begin, end, data)) good = false;
  });
  return good;
}

// Checks the parts and says what they become.
PackedMatrix describe(std::span<const GgufRows> parts, mx::Dtype dtype, bool interleave) {
  if (parts.empty()) refuse(GgufFormat::kNone, "no parts");
  PackedMatrix result;
  result.dtype = dtype;
  result.interleaved = interleave;
  result.gguf = parts[0].format;
  result.int8_activations = parts[0].int8_activations;
  result.k = parts[0].k;
  for (const GgufRows& part : parts) {
    if (part.k != result.k) refuse(part.format, "parts of different numbers of columns");
    if (part.int8_activations != result.int8_activations)
      refuse(part.format, "parts with and without 8-bit activations");
    result.n += part.n;
  }
  const int64_t weights = gguf_block(result.gguf).weights;
  if (weights == 0) refuse(result.gguf, "no block format");
  if (result.k % weights != 0)
    refuse(result.gguf, "blocks of " + std::to_string(weights) + " do not divide " +
                            std::to_string(result.k) + " columns");
  if (interleave && result.n % 2 != 0)
    refuse(result.gguf, "an odd number of rows cannot be interleaved");
  return result;
}

// Where a GPU has no kernel for the parts.
PackedMatrix pack_as_values(const Context& context, std::span<const GgufRows> parts,
                            mx::Dtype dtype, bool interleave, const PackProgress& progress) {
  return pack_values(
      context, pack_gguf_matrix(on_host(context), parts, dtype, /*interleave=*/false, progress),
      interleave);
}

// Parts of one format.
PackedMatrix pack_uniform(const Context& context, std::span<const GgufRows> parts, mx::Dtype dtype,
                          bool interleave, const PackProgress& progress) {
  PackedMatrix result = describe(parts, dtype, interleave);
  if (result.int8_activations && !context.device->host_memory())
    refuse(result.gguf, "no kernel for 8-bit activations");
  if (result.gguf == GgufFormat::kQ4_1 || is_e2m1(result.gguf))
    return pack_gguf_as_mlx(context, parts, dtype, interleave, progress);
  if constexpr (kHasCuda)
    if (CudaDevice* cuda = context.device->cuda())
      return blocks_on_cuda(*cuda, context,
                            pack_uniform(on_host(context), parts, dtype, interleave, progress));
  if (context.device->metal()) return pack_as_values(context, parts, dtype, interleave, progress);
  result.turned = packs_turned(linear_format(result, dtype));
  const QuantisedLayout layout = quantised_layout(result);
  const auto memory = context.device->allocate(static_cast<size_t>(layout.bytes()));
  if (!pack_panels(*context.pool, layout, parts, progress,
                   reinterpret_cast<uint8_t*>(memory.get())))
    refuse(result.gguf, "a scale is no finite number");
  result.data = memory;
  return result;
}

// Progress of the parts from `first` on.
PackProgress progress_from(size_t first, const PackProgress& progress) {
  const auto moved = [first](const PackProgress::Rows& tell) -> PackProgress::Rows {
    if (!tell) return {};
    return [first, tell](size_t part, int64_t begin, int64_t count) {
      tell(first + part, begin, count);
    };
  };
  const auto moved_fetch = [first](const PackProgress::Fetch& fetch) -> PackProgress::Fetch {
    if (!fetch) return {};
    return [first, fetch](size_t part, int64_t begin, int64_t count) {
      return fetch(first + part, begin, count);
    };
  };
  PackProgress result;
  result.needs = moved(progress.needs);
  result.has_read = moved(progress.has_read);
  result.fetch = moved_fetch(progress.fetch);
  return result;
}

}  // namespace

bool is_alike(const GgufRows& a, const GgufRows& b) {
  return a.format == b.format && a.multiplier == b.multiplier;
}

PackedMatrix pack_gguf_matrix(const Context& context, std::span<const GgufRows> parts,
                              mx::Dtype dtype, bool interleave, const PackProgress& progress) {
  check_float("pack_gguf_matrix", "the packed matrix", dtype);
  const bool uniform = std::all_of(parts.begin(), parts.end(), [&](const GgufRows& part) {
    return part.format == parts[0].format;
  });
  if (uniform && go_together(parts, interleave))
    return pack_uniform(context, parts, dtype, interleave, progress);
  if (context.device->metal() || (context.device->cuda() && interleave))
    return pack_as_values(context, parts, dtype, interleave, progress);
  std::vector<PackedMatrix> matrices;
  for (size_t begin = 0, end = 0; begin < parts.size(); begin = end) {
    while (end < parts.size() && is_alike(parts[end], parts[begin])) ++end;
    matrices.push_back(pack_uniform(context, parts.subspan(begin, end - begin), dtype,
                                    /*interleave=*/false, progress_from(begin, progress)));
  }
  return stack_matrices(context, std::move(matrices), interleave);
}

}  // namespace quire::ops
