// The part of WeightLoader that takes 4-bit floats of folders that were made for GPUs.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "formats/nf4_state.h"
#include "models/folder_tensors.h"
#include "models/tensor_checks.h"
#include "models/weights.h"

namespace quire::models {

using formats::DType;
using formats::FolderFormat;
using formats::FolderScheme;
using formats::RawTensor;

void expect_tensor(const RawTensor& tensor, std::initializer_list<DType> dtypes,
                   const std::vector<int64_t>& shape) {
  if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype) == dtypes.end())
    throw LoadError(where(tensor) + " has dtype " + std::string(formats::dtype_name(tensor.dtype)) +
                    ", but this format asks for " +
                    std::string(formats::dtype_name(*dtypes.begin())) + kOtherConfig);
  if (!has_shape(tensor, shape))
    throw LoadError(where(tensor) + " has shape " + shape_text(tensor.shape) +
                    ", but config.json asks for " + shape_text(shape) + kOtherConfig);
}

namespace {

void expect_columns(const RawTensor& values, int64_t k, int64_t group) {
  if (k % group != 0)
    throw LoadError(where(values) + " has " + std::to_string(k) + " columns, which groups of " +
                    std::to_string(group) + " do not divide");
}

}  // namespace

WeightLoader::Part WeightLoader::take_mxfp4_bytes(const RawTensor& values, int64_t n, int64_t k) {
  expect_columns(values, k, 32);
  expect_tensor(values, {DType::kU8}, {n, k / 2});
  const RawTensor& scales = take_any(layer_name(values.name) + ".weight_scale");
  expect_tensor(scales, {DType::kU8, DType::kF8E8M0}, {values.shape[0], k / 32});
  return block_float_part(values, scales,
                          {.n = values.shape[0], .k = k, .format = ops::BlockFloat::kMxfp4});
}

// The number that belongs to all of a matrix says how its scales were rounded to 8 bits.
WeightLoader::Part WeightLoader::take_nvfp4_bytes(const RawTensor& values,
                                                  const FolderScheme& scheme, int64_t n,
                                                  int64_t k) {
  expect_columns(values, k, 16);
  expect_tensor(values, {DType::kU8}, {n, k / 2});
  const std::string stem = layer_name(values.name);
  const RawTensor& scales = take_any(stem + ".weight_scale");
  expect_tensor(scales, {DType::kF8E4M3}, {values.shape[0], k / 16});
  const bool divides = scheme.format == FolderFormat::kNvfp4;
  // How activations would be rounded (formats::FolderQuantization::note).
  const std::string of_inputs = stem + (divides ? ".input_global_scale" : ".input_scale");
  if (checkpoint_.find(of_inputs)) taken_.insert(of_inputs);
  const RawTensor& stored = take_any(stem + (divides ? ".weight_global_scale" : ".weight_scale_2"));
  if (!stored.shape.empty()) expect_tensor(stored, {DType::kF32}, {1});
  const float of_matrix = take_floats(stored.name, stored.shape).front();
  return block_float_part(values, scales,
                          {.n = values.shape[0],
                           .k = k,
                           .format = ops::BlockFloat::kScaledNvfp4,
                           .multiplier = divides ? 1.0f : of_matrix,
                           .divisor = divides ? of_matrix : 1.0f});
}

// What "X.weight.quant_state.bitsandbytes__nf4" says, and the scales of a matrix.
struct Nf4Matrix {
  int64_t n = 0, k = 0, nested_block = 0;
  float offset = 0;  // of nested scales
  // Of 64 values each: float32, or bytes if they are nested.
  std::vector<std::byte> absmax = {};
  // Of nested scales: what a byte stands for, and a number for nested_block of them.
  std::vector<float> map = {}, factors = {};

  bool is_nested() const { return !map.empty(); }
  float scale(int64_t block) const {
    const auto at = static_cast<size_t>(block);
    if (!is_nested()) {
      float out;
      std::memcpy(&out, absmax.data() + at * sizeof(out), sizeof(out));
      return out;
    }
    const float product =
        map[static_cast<size_t>(absmax[at])] * factors[static_cast<size_t>(block / nested_block)];
    return product + offset;
  }
};

namespace {

Nf4Matrix read_state(const RawTensor& tensor) {
  if (tensor.dtype != DType::kU8 || tensor.size > 4096)
    throw LoadError(where(tensor) + " is no JSON text in at most 4096 bytes");
  const std::vector<std::byte> bytes = tensor.read_all();
  const formats::Nf4State state = formats::read_nf4_state(
      where(tensor), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return {.n = state.rows,
          .k = state.columns,
          .nested_block = state.nested_block,
          .offset = state.nested_offset};
}

// The codes [N * K / 2] as the kernels take them, the low nibble first.
std::vector<std::byte> read_codes(const RawTensor& values, ThreadPool& pool) {
  std::vector<std::byte> out(values.size);
  values.read(0, out, pool);
  for (std::byte& two : out) two = two >> 4 | two << 4;
  return out;
}

// What of a matrix is packed: codes, and scales as BlockFloatRows has them.
struct Nf4Rows {
  ops::BlockFloat format = ops::BlockFloat::kNf4;
  std::vector<std::byte> codes, scales;
  std::vector<uint16_t> pairs = {};
  std::shared_ptr<const std::vector<float>> nested = nullptr;
};

std::shared_ptr<const Nf4Rows> rows_of(const Nf4Matrix& m, std::vector<std::byte> codes) {
  const int64_t blocks = m.n * m.k / 64;
  auto out = std::make_shared<Nf4Rows>(Nf4Rows{.codes = std::move(codes), .scales = {}});
  if (!m.is_nested() || m.k % 128 != 0 || m.nested_block % 2 != 0 ||
      static_cast<int64_t>(m.factors.size()) > ops::kMostNestedPairs) {
    out->scales.resize(static_cast<size_t>(blocks) * sizeof(float));
    for (int64_t block = 0; block < blocks; ++block) {
      const float scale = m.scale(block);
      std::memcpy(out->scales.data() + static_cast<size_t>(block) * sizeof(scale), &scale,
                  sizeof(scale));
    }
    return out;
  }
  out->format = ops::BlockFloat::kNestedNf4;
  out->scales = m.absmax;
  for (int64_t block = 0; block < blocks; block += 2)
    out->pairs.push_back(static_cast<uint16_t>(block / m.nested_block));
  std::vector<float> nested = m.map;
  for (const float factor : m.factors) nested.insert(nested.end(), {factor, m.offset});
  out->nested = std::make_shared<const std::vector<float>>(std::move(nested));
  return out;
}

// [n, k] float32: code * scale, rounded once.
std::shared_ptr<std::byte[]> nf4_values(const Nf4Matrix& m, const std::vector<std::byte>& codes) {
  const std::shared_ptr<std::byte[]> memory(
      new std::byte[static_cast<size_t>(m.n * m.k) * sizeof(float)]);
  auto* out = reinterpret_cast<float*>(memory.get());
  for (int64_t i = 0; i < m.n * m.k; ++i) {
    const auto two = static_cast<unsigned>(codes[static_cast<size_t>(i / 2)]);
    out[i] = ops::kNf4Values[i % 2 ? two >> 4 : two & 15] * m.scale(i / 64);
  }
  return memory;
}

}  // namespace

// Beside "X.weight": its shape and how its scales are kept, the values of the codes, the scales.
WeightLoader::Part WeightLoader::take_nf4(const RawTensor& values, int64_t n, int64_t k) {
  const auto beside = [&](const char* name) -> const RawTensor& {
    return take_any(values.name + name);
  };
  const RawTensor& state = beside(formats::kNf4State);
  Nf4Matrix m = read_state(state);
  if ((n >= 0 && m.n != n) || m.k != k)
    throw LoadError(where(state) + " says " + shape_text({m.n, m.k}) +
                    ", but config.json asks for " + shape_text({n, k}) + kOtherConfig);
  const int64_t blocks = (m.n * m.k + 63) / 64;
  expect_tensor(values, {DType::kU8}, {(m.n * m.k + 1) / 2, 1});
  const RawTensor &map = beside(".quant_map"), &absmax = beside(".absmax");
  if (!std::ranges::equal(take_floats(map.name, {16}), ops::kNf4Values))
    throw LoadError(where(map) + " is not that of nf4, which is not supported");
  expect_tensor(absmax, {m.nested_block > 0 ? DType::kU8 : DType::kF32}, {blocks});
  if (m.nested_block > 0) {
    m.map = take_floats(beside(".nested_quant_map").name, {ops::kNestedMap});
    m.factors = take_floats(beside(".nested_absmax").name,
                            {(blocks + m.nested_block - 1) / m.nested_block});
  }
  return {.n = m.n, .tensors = {&values, &state, &absmax}, .read = [this, m](Part& part) {
            read_nf4(m, part);
          }};
}

// Of `part`, whose tensors are values, state and scales.
void WeightLoader::read_nf4(Nf4Matrix m, Part& part) {
  const RawTensor &values = *part.tensors[0], &absmax = *part.tensors[2];
  m.absmax = absmax.read_all();
  std::vector<std::byte> codes = read_codes(values, *context_.pool);
  if (m.k % 64 != 0) {
    for (int64_t block = 0; block < (m.n * m.k + 63) / 64; ++block)
      if (!std::isfinite(m.scale(block)))
        throw LoadError(where(absmax) + " has a scale that is no number; download the model again");
    unpacked_.insert(values.name);
    part.copy = nf4_values(m, codes);
    part.dense = {.data = part.copy.get(), .n = m.n, .k = m.k, .dtype = mx::float32};
    return;
  }
  const std::shared_ptr<const Nf4Rows> rows = rows_of(m, std::move(codes));
  part.block_float = ops::BlockFloatRows{.values = rows->codes.data(),
                                         .scales = rows->scales.data(),
                                         .n = m.n,
                                         .k = m.k,
                                         .format = rows->format,
                                         .pairs = rows->pairs.data(),
                                         .nested = rows->nested};
  part.copy = std::shared_ptr<const std::byte[]>(rows, rows->codes.data());
}

}  // namespace quire::models
