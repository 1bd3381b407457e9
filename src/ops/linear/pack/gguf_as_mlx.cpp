#include "ops/linear/pack/gguf_as_mlx.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/first_failure.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/block_float_matrix.h"
#include "ops/linear/pack/gguf_as_mlx_cpu.h"

namespace quire::ops {
namespace {

// A block's weights that share a scale.
int64_t group_of(GgufFormat format) { return format == GgufFormat::kNvfp4 ? 16 : 32; }

// Of a row as MLX would store it.
int64_t values_bytes(const GgufRows& rows) { return rows.k / 2; }

// A part as MLX would store it. There are no values if they are converted as they are packed.
struct MlxPart {
  std::vector<uint8_t> values, scales, biases;
};

MlxPart make_part(const GgufRows& rows, bool with_values) {
  const auto groups = static_cast<size_t>(rows.n * rows.k / group_of(rows.format));
  const bool affine = rows.format == GgufFormat::kQ4_1;
  return {.values = std::vector<uint8_t>(
              with_values ? static_cast<size_t>(rows.n * values_bytes(rows)) : 0),
          .scales = std::vector<uint8_t>(groups * (affine ? 2 : 1)),
          .biases = std::vector<uint8_t>(affine ? groups * 2 : 0)};
}

// Converts parts. Methods are for all threads.
class Converter {
 public:
  Converter(std::span<const GgufRows> parts, const PackProgress& progress, bool with_values)
      : parts_(parts), progress_(progress) {
    for (const GgufRows& part : parts) converted_.push_back(make_part(part, with_values));
  }

  const MlxPart& part(size_t index) const { return converted_[index]; }

  // Rows of a part: their values to `values`, and what is beside these to the part.
  void convert(size_t index, int64_t begin, int64_t count, uint8_t* values) {
    const GgufRows& rows = parts_[index];
    const int64_t row_bytes = gguf_row_bytes(rows.format, rows.k);
    const std::shared_ptr<const void> fetched =
        progress_.fetch ? progress_.fetch(index, begin, count) : nullptr;
    const auto* from = fetched ? static_cast<const uint8_t*>(fetched.get())
                               : static_cast<const uint8_t*>(rows.data) + begin * row_bytes;
    MlxPart& to = converted_[index];
    const int64_t groups = rows.k / group_of(rows.format), bytes = to.biases.empty() ? 1 : 2;
    for (int64_t i = 0; i < count; ++i, from += row_bytes) {
      const int64_t at = (begin + i) * groups * bytes;
      const MlxRow row = {.values = values + i * values_bytes(rows),
                          .scales = to.scales.data() + at,
                          .biases = to.biases.data() + (to.biases.empty() ? 0 : at)};
      if (!gguf_row_as_mlx_cpu(rows.format, from, rows.k, row)) finite_ = false;
    }
  }

  // All of a part with its values.
  void convert_all(ThreadPool& pool, size_t index) {
    constexpr int64_t kSliceBytes = int64_t{256} << 10;
    const int64_t row_bytes = values_bytes(parts_[index]), n = parts_[index].n;
    const int64_t slice = std::max<int64_t>(1, kSliceBytes / std::max<int64_t>(1, row_bytes));
    FirstFailure failure;
    pool.parallel_for((n + slice - 1) / slice, [&](int64_t at) {
      failure.note([&] {
        const int64_t begin = at * slice;
        convert(index, begin, std::min(slice, n - begin),
                converted_[index].values.data() + begin * row_bytes);
      });
    });
    failure.rethrow();
  }

  // Values as they are asked for; each row once.
  PackProgress::Fetch values() {
    return [this](size_t index, int64_t begin, int64_t count) -> std::shared_ptr<const void> {
      const std::shared_ptr<uint8_t[]> piece(
          new uint8_t[static_cast<size_t>(count * values_bytes(parts_[index]))]);
      convert(index, begin, count, piece.get());
      return piece;
    };
  }

  void check() const {
    if (!finite_)
      throw std::invalid_argument(std::string("pack_gguf_matrix: ") +
                                  gguf_block(parts_[0].format).name +
                                  ": a scale is no finite number");
  }

 private:
  std::span<const GgufRows> parts_;
  const PackProgress& progress_;
  std::vector<MlxPart> converted_;
  std::atomic<bool> finite_ = true;
};

AffineRows affine_rows(const GgufRows& rows, const MlxPart& part) {
  return {.values = part.values.data(),  // null: they are fetched
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
  const bool is_told = !progress.fetch && (progress.needs || progress.has_read);
  const bool before = is_told || !context.device->host_memory();
  Converter converter(parts, progress, /*with_values=*/before);
  for (size_t i = 0; before && i < parts.size(); ++i) {
    if (is_told && progress.needs) progress.needs(i, 0, parts[i].n);
    converter.convert_all(*context.pool, i);
    if (is_told && progress.has_read) progress.has_read(i, 0, parts[i].n);
  }
  PackProgress of_values;
  if (!before) of_values.fetch = converter.values();
  PackedMatrix packed;
  if (parts[0].format == GgufFormat::kQ4_1) {
    std::vector<AffineRows> rows;
    for (size_t i = 0; i < parts.size(); ++i)
      rows.push_back(affine_rows(parts[i], converter.part(i)));
    packed = pack_affine_matrix(context, rows, dtype, interleave, of_values);
  } else {
    std::vector<BlockFloatRows> rows;
    for (size_t i = 0; i < parts.size(); ++i)
      rows.push_back(block_float_rows(parts[i], converter.part(i)));
    packed = pack_block_float_matrix(context, rows, dtype, interleave, of_values);
  }
  converter.check();
  return packed;
}

}  // namespace quire::ops
