#include "ops/linear/pack/gguf_as_mlx.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/first_failure.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/block_float_matrix.h"

namespace quire::ops {
namespace {

// A block's weights that share a scale.
int64_t group_of(GgufFormat format) { return format == GgufFormat::kNvfp4 ? 16 : 32; }

// A part as MLX would store it.
struct MlxPart {
  std::vector<uint8_t> values, scales, biases;
};

// The nibbles of a group: those of the low halves come first in a file, neighbours share a byte in
// MLX.
void reorder_nibbles(const uint8_t* qs, int64_t bytes, uint8_t* out) {
  for (int64_t i = 0; i < bytes / 2; ++i) {
    out[i] = static_cast<uint8_t>((qs[2 * i] & 15) | qs[2 * i + 1] << 4);
    out[bytes / 2 + i] = static_cast<uint8_t>(qs[2 * i] >> 4 | (qs[2 * i + 1] & 0xF0));
  }
}

bool is_finite(const uint8_t* half) { return (half[1] & 0x7C) != 0x7C; }

// Block `i` of a part. Returns false for a scale that is no finite number; those of one byte are
// checked where block floats are packed.
bool convert_block(GgufFormat format, const uint8_t* block, int64_t i, MlxPart& to) {
  uint8_t* values = &to.values[static_cast<size_t>(i * gguf_block(format).weights / 2)];
  if (format == GgufFormat::kMxfp4) {
    to.scales[static_cast<size_t>(i)] = block[0];
    reorder_nibbles(block + 1, 16, values);
    return true;
  }
  if (format == GgufFormat::kNvfp4) {
    for (int64_t group = 0; group < 4; ++group) {
      to.scales[static_cast<size_t>(4 * i + group)] = block[group] == 0x7F ? 0 : block[group];
      reorder_nibbles(block + 4 + 8 * group, 8, values + 8 * group);
    }
    return true;
  }
  std::memcpy(&to.scales[static_cast<size_t>(2 * i)], block, 2);
  std::memcpy(&to.biases[static_cast<size_t>(2 * i)], block + 2, 2);
  reorder_nibbles(block + 4, 16, values);
  return is_finite(block) && is_finite(block + 2);
}

// Part `index`, slice by slice; each thread fetches its own.
MlxPart convert(const Context& context, const GgufRows& rows, size_t index,
                const PackProgress& progress) {
  constexpr int64_t kSliceBytes = int64_t{256} << 10;
  const GgufBlock block = gguf_block(rows.format);
  const int64_t blocks = rows.k / block.weights;  // NOLINT: kNone has no rows
  const int64_t row_bytes = gguf_row_bytes(rows.format, rows.k);
  const int64_t slice = std::max<int64_t>(1, kSliceBytes / std::max<int64_t>(1, row_bytes));
  const auto groups = static_cast<size_t>(rows.n * rows.k / group_of(rows.format));
  const bool affine = rows.format == GgufFormat::kQ4_1;
  MlxPart part = {.values = std::vector<uint8_t>(static_cast<size_t>(rows.n * rows.k / 2)),
                  .scales = std::vector<uint8_t>(groups * (affine ? 2 : 1)),
                  .biases = std::vector<uint8_t>(affine ? groups * 2 : 0)};
  std::atomic<bool> good = true;
  FirstFailure failure;
  context.pool->parallel_for((rows.n + slice - 1) / slice, [&](int64_t at) {
    failure.note([&] {
      const int64_t begin = at * slice, count = std::min(slice, rows.n - begin);
      const std::shared_ptr<const void> fetched =
          progress.fetch ? progress.fetch(index, begin, count) : nullptr;
      const auto* from = fetched ? static_cast<const uint8_t*>(fetched.get())
                                 : static_cast<const uint8_t*>(rows.data) + begin * row_bytes;
      for (int64_t i = 0; i < count * blocks; ++i)
        if (!convert_block(rows.format, from + i * block.bytes, begin * blocks + i, part))
          good = false;
    });
  });
  failure.rethrow();
  if (!good)
    throw std::invalid_argument(std::string("pack_gguf_matrix: ") + block.name +
                                ": a scale is no finite number");
  return part;
}

AffineRows affine_rows(const GgufRows& rows, const MlxPart& part) {
  return {.values = part.values.data(),
          .scales = part.scales.data(),
          .biases = part.biases.data(),
          .n = rows.n,
          .k = rows.k,
          .format = {.bits = 4,
                     .group_size = group_of(rows.format),
                     .scale_dtype = mx::float16,
                     .int8_activations = rows.int8_activations}};
}
BlockFloatRows block_float_rows(const GgufRows& rows, const MlxPart& part) {
  const bool nvfp4 = rows.format == GgufFormat::kNvfp4;
  return {.values = part.values.data(),
          .scales = part.scales.data(),
          .n = rows.n,
          .k = rows.k,
          .format = nvfp4 ? BlockFloat::kScaledNvfp4 : BlockFloat::kMxfp4,
          .multiplier = rows.multiplier,
          .int8_activations = rows.int8_activations};
}

}  // namespace

bool go_together(std::span<const GgufRows> parts, bool interleave) {
  if (parts.empty() || parts[0].format != GgufFormat::kNvfp4) return true;
  std::vector<BlockFloatRows> rows;
  for (const GgufRows& part : parts) rows.push_back(block_float_rows(part, {}));
  return go_together(rows, interleave);
}

PackedMatrix pack_gguf_as_mlx(const Context& context, std::span<const GgufRows> parts,
                              mx::Dtype dtype, bool interleave, const PackProgress& progress) {
  std::vector<MlxPart> converted;
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool is_told = !progress.fetch;
    if (is_told && progress.needs) progress.needs(i, 0, parts[i].n);
    converted.push_back(convert(context, parts[i], i, progress));
    if (is_told && progress.has_read) progress.has_read(i, 0, parts[i].n);
  }
  if (parts[0].format == GgufFormat::kQ4_1) {
    std::vector<AffineRows> rows;
    for (size_t i = 0; i < parts.size(); ++i) rows.push_back(affine_rows(parts[i], converted[i]));
    return pack_affine_matrix(context, rows, dtype, interleave);
  }
  std::vector<BlockFloatRows> rows;
  for (size_t i = 0; i < parts.size(); ++i)
    rows.push_back(block_float_rows(parts[i], converted[i]));
  return pack_block_float_matrix(context, rows, dtype, interleave);
}

}  // namespace quire::ops
