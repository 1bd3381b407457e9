// The part of WeightLoader that takes 8-bit floats of folders that were made for GPUs.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "formats/block_float_quantize.h"
#include "models/folder_tensors.h"
#include "models/tensor_checks.h"
#include "models/weights.h"

namespace quire::models {
namespace {

using formats::FolderScheme;
using formats::RawTensor;

// Where the scale of row r and column c of an 8-bit float matrix is: r / rows * stride + c /
// columns.
struct Float8Scales {
  int64_t n, k, rows, columns, stride;
};

// modelopt leaves out axes of one, or has one behind each.
bool has_blocks(const RawTensor& scales, int64_t rows, int64_t columns) {
  std::vector<int64_t> longer = {rows, columns};
  std::erase(longer, 1);
  return has_shape(scales, {rows, columns}) || has_shape(scales, {rows, 1, columns, 1}) ||
         has_shape(scales, longer);
}

Float8Scales scales_for(const RawTensor& scales, const FolderScheme& scheme, int64_t n, int64_t k) {
  if (scheme.block_rows > 0) {
    const int64_t columns = (k + scheme.block_columns - 1) / scheme.block_columns;
    const int64_t rows = (n + scheme.block_rows - 1) / scheme.block_rows;
    if (!has_blocks(scales, rows, columns))
      throw LoadError(where(scales) + " has shape " + shape_text(scales.shape) + ", but " +
                      shape_text({rows, columns}) + " go with blocks of " +
                      std::to_string(scheme.block_rows) + " x " +
                      std::to_string(scheme.block_columns) + kOtherConfig);
    return {n, k, scheme.block_rows, scheme.block_columns, columns};
  }
  if (scales.num_elements() == 1) return {n, k, n, k, 1};
  if (!has_shape(scales, {n, 1}) && !has_shape(scales, {n}))
    throw LoadError(where(scales) + " has shape " + shape_text(scales.shape) +
                    ", but scales are one for all, or " + shape_text({n, 1}) + kOtherConfig);
  return {n, k, 1, k, 1};
}

// As the kernels have them: [n, ceil(k / 128)] float32.
std::shared_ptr<std::byte[]> scales_of_groups(const Float8Scales& at,
                                              const std::vector<float>& scales) {
  const int64_t group = ops::block_float_format(ops::BlockFloat::kFloat8).group_size;
  const int64_t groups = (at.k + group - 1) / group;
  const std::shared_ptr<std::byte[]> memory(
      new std::byte[static_cast<size_t>(at.n * groups) * sizeof(float)]);
  auto* out = reinterpret_cast<float*>(memory.get());
  for (int64_t row = 0; row < at.n; ++row)
    for (int64_t g = 0; g < groups; ++g)
      out[row * groups + g] =
          scales[static_cast<size_t>(row / at.rows * at.stride + g * group / at.columns)];
  return memory;
}

// Of bytes that are exponents; the last says that there is no number.
std::vector<float> powers_of_two(const RawTensor& tensor) {
  std::vector<float> out;
  for (const std::byte exponent : tensor.read_all()) {
    if (exponent == std::byte{255})
      throw LoadError(where(tensor) + " has a scale that is no number; download the model again");
    out.push_back(std::ldexp(1.0f, static_cast<int>(exponent) - 127));
  }
  return out;
}

std::array<float, 256> float8_table() {
  std::array<float, 256> table;
  for (size_t code = 0; code < table.size(); ++code)
    table[code] = formats::float8_value(static_cast<uint8_t>(code));
  return table;
}

// [n, k] float32: code * scale, rounded once.
std::shared_ptr<std::byte[]> float8_values(const RawTensor& values, const Float8Scales& at,
                                           const std::vector<float>& scales, ThreadPool& pool) {
  static const std::array<float, 256> kTable = float8_table();
  std::vector<std::byte> codes(values.size);
  values.read(0, codes, pool);
  if (std::ranges::any_of(codes,
                          [](std::byte c) { return (c | std::byte{128}) == std::byte{255}; }) ||
      !std::ranges::all_of(scales, [](float scale) { return std::isfinite(scale); }))
    throw LoadError(where(values) +
                    " holds a value, or has a scale, that is no number; download the model again");
  const std::shared_ptr<std::byte[]> memory(new std::byte[codes.size() * sizeof(float)]);
  auto* out = reinterpret_cast<float*>(memory.get());
  pool.parallel_for(at.n, [&](int64_t row) {
    const float* of_row = scales.data() + row / at.rows * at.stride;
    for (int64_t k = 0; k < at.k; ++k)
      out[row * at.k + k] =
          kTable[static_cast<size_t>(codes[static_cast<size_t>(row * at.k + k)])] *
          of_row[k / at.columns];
  });
  return memory;
}

}  // namespace

WeightLoader::Part WeightLoader::take_float8(const RawTensor& values, const FolderScheme& scheme,
                                             int64_t n, int64_t k) {
  if (n < 0 && values.shape.size() == 2) n = values.shape[0];
  expect_tensor(values, {formats::DType::kF8E4M3}, {n, k});
  const std::string stem = layer_name(values.name);
  const bool inverse = checkpoint_.find(stem + ".weight_scale_inv") != nullptr;
  const RawTensor& stored = take_any(stem + (inverse ? ".weight_scale_inv" : ".weight_scale"));
  const Float8Scales scales = scales_for(stored, scheme, n, k);
  const bool powers = stored.dtype == formats::DType::kF8E8M0;
  if (powers) count_progress(stored);
  const std::vector<float> factors =
      powers ? powers_of_two(stored) : take_floats(stored.name, stored.shape);
  skip_activation_scales(stem);
  Part part{.n = n, .tensors = {&values}};
  if (!is_packed_float8(scheme, k)) {
    part.read = [this, &values, scales, factors](Part& read) {
      unpacked_.insert(values.name);
      read.copy = float8_values(values, scales, factors, *context_.pool);
      read.dense = {.data = read.copy.get(), .n = scales.n, .k = scales.k, .dtype = mx::float32};
    };
    return part;
  }
  part.staged = std::make_shared<formats::StagedTensor>(values);
  part.copy = scales_of_groups(scales, factors);
  part.block_float = ops::BlockFloatRows{.values = part.staged->data(),
                                         .scales = part.copy.get(),
                                         .n = n,
                                         .k = k,
                                         .format = ops::BlockFloat::kFloat8};
  return part;
}

}  // namespace quire::models
