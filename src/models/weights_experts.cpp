// The part of WeightLoader that is about experts: tensors that hold the matrices of all of them, in
// the orders that families store them in.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "formats/openai_mxfp4.h"
#include "models/tensor_checks.h"
#include "models/weights.h"
#include "ops/cpu/parallel_blocks.h"

namespace quire::models {
namespace {

constexpr const char* kMxfp4 = "mxfp4";

// Where row `row` of n is stored if rows of the two halves take turns.
int64_t alternating_row(int64_t row, int64_t n) {
  return row < n / 2 ? 2 * row : 2 * (row - n / 2) + 1;
}

struct Matrix {
  const std::byte* data;
  int64_t n, k, element_bytes;
};

// [n, k] from the stored [k, n]; `stored(row)` is the column that becomes a row.
template <class F>
void copy_transposed(ThreadPool& pool, const Matrix& from, std::byte* to, const F& stored) {
  const int64_t bytes = from.element_bytes;
  // Some rows at a time: what is read of a stored row is a line of the cache.
  ops::parallel_blocks(pool, from.n, 32, [&](int64_t begin, int64_t end) {
    for (int64_t j = 0; j < from.k; ++j)
      for (int64_t row = begin; row < end; ++row)
        std::memcpy(to + (row * from.k + j) * bytes, from.data + (j * from.n + stored(row)) * bytes,
                    static_cast<size_t>(bytes));
  });
}

}  // namespace

WeightLoader::Part WeightLoader::part_of_stack(Part first, int64_t index) {
  const int64_t n = first.n;
  Part part = part_of_rows(std::move(first), index * n, n);
  if (!part.multipliers.empty())
    part.gguf->multiplier = part.multipliers[static_cast<size_t>(index)];
  return part;
}

WeightLoader::Part WeightLoader::take_blocks(const std::string& name, int64_t n, int64_t k,
                                             int64_t stack) {
  const formats::RawTensor& values = take_any(name);
  const int64_t group = ops::block_float_format(ops::BlockFloat::kMxfp4).group_size;
  if (k % group != 0)
    throw LoadError(where(values) + " has " + std::to_string(k) + " columns, which groups of " +
                    std::to_string(group) + " do not divide");
  const formats::RawTensor& scales = take_any(formats::openai_scales_name(name));
  expect_shape(values, {stack, n, k / group, group / 2});
  expect_shape(scales, {stack, n, k / group});
  for (const formats::RawTensor* tensor : {&values, &scales})
    if (tensor->dtype != formats::DType::kU8)
      throw LoadError(where(*tensor) + " has dtype " +
                      std::string(formats::dtype_name(tensor->dtype)) + ", but " + kMxfp4 +
                      " is U8");
  return block_float_part(values, scales, {.n = n, .k = k, .format = ops::BlockFloat::kMxfp4});
}

WeightLoader::Part WeightLoader::take_stack(const std::string& name, const ExpertTensors& tensors,
                                            int64_t n, int64_t k, int64_t stack) {
  if (formats::is_openai_codes(name)) return with_contents(take_blocks(name, n, k, stack), k);
  if (!tensors.transposed) return take_part(name, n, k, stack);
  if (is_quantised(name))
    throw LoadError(where(*find(name)) + " is quantised along its outputs, which is not supported");
  return take_part(name, k, n, stack);
}

WeightLoader::Part WeightLoader::in_order(const Part& part, const ExpertTensors& tensors) const {
  if (!tensors.transposed && !tensors.alternating) return part;
  const std::span<const std::byte> values = part.row_bytes(0, part.n);
  part.staged->load(values, *context_.pool);
  Part result = part.block_float ? halves_of(part) : transposed(part, tensors.alternating);
  result.staged = nullptr;
  part.staged->release(values);
  return result;
}

WeightLoader::Part WeightLoader::transposed(const Part& part, bool alternating) const {
  const Matrix from = {.data = static_cast<const std::byte*>(part.dense.data),
                       .n = part.dense.k,
                       .k = part.n,
                       .element_bytes = static_cast<int64_t>(part.dense.dtype.size())};
  const std::shared_ptr<std::byte[]> copy(
      new std::byte[static_cast<size_t>(from.n * from.k * from.element_bytes)]);
  copy_transposed(*context_.pool, from, copy.get(),
                  [&](int64_t row) { return alternating ? alternating_row(row, from.n) : row; });
  Part result = part;
  result.n = from.n;
  result.dense = {.data = copy.get(), .n = from.n, .k = from.k, .dtype = part.dense.dtype};
  result.copy = copy;
  return result;
}

WeightLoader::Part WeightLoader::halves_of(const Part& part) {
  std::vector<WeightRows> order;
  for (int64_t row = 0; row < part.n; ++row)
    order.push_back({.begin = alternating_row(row, part.n), .count = 1});
  return copied(part, order);
}

std::vector<mx::array> WeightLoader::expert_biases(const ExpertTensors& tensors, int64_t count,
                                                   int64_t n) {
  const int64_t each = n / static_cast<int64_t>(tensors.biases.size());
  std::vector<std::vector<float>> stored;
  for (const std::string& name : tensors.biases) stored.push_back(take_floats(name, {count, each}));
  std::vector<mx::array> result;
  for (int64_t e = 0; e < count; ++e) {
    std::vector<float> bias;
    for (const auto& all : stored)
      for (int64_t i = 0; i < each; ++i)
        bias.push_back(all[e * each + (tensors.alternating ? alternating_row(i, each) : i)]);
    result.push_back(floats(bias, {static_cast<int>(n)}));
  }
  return result;
}

std::vector<ops::LinearWeight> WeightLoader::numbered_experts(const ExpertTensors& tensors,
                                                              int64_t count, int64_t n, int64_t k,
                                                              bool interleave) {
  std::vector<ops::LinearWeight> experts;
  for (int64_t e = 0; e < count; ++e) {
    std::vector<std::string> weights = tensors.weights, biases = tensors.biases;
    for (std::string& name : weights) name = expert_name(name, e);
    for (std::string& name : biases) name = expert_name(name, e);
    experts.push_back(linear(weights, biases, n, k, interleave));
  }
  return experts;
}

std::vector<ops::LinearWeight> WeightLoader::expert_linears(const ExpertTensors& tensors,
                                                            int64_t count, int64_t n, int64_t k,
                                                            bool interleave) {
  stay_in_place_ = false;
  const bool is_stack = tensors.weights.front().find('*') == std::string::npos;
  auto experts = is_stack ? stacked_experts(tensors, count, n, k, interleave)
                          : numbered_experts(tensors, count, n, k, interleave);
  stay_in_place_ = true;
  return experts;
}

std::vector<ops::LinearWeight> WeightLoader::stacked_experts(const ExpertTensors& tensors,
                                                             int64_t count, int64_t n, int64_t k,
                                                             bool interleave) {
  const int64_t each = n / static_cast<int64_t>(tensors.weights.size());
  std::vector<Part> stacks;
  for (const std::string& name : tensors.weights)
    stacks.push_back(take_stack(name, tensors, each, k, count));
  std::vector<ops::LinearWeight> experts;
  for (int64_t e = 0; e < count; ++e) {
    std::vector<Part> parts;
    for (const Part& stack : stacks) parts.push_back(in_order(part_of_stack(stack, e), tensors));
    experts.push_back({.weight = pack(parts, interleave), .bias = std::nullopt});
    count_packed(experts.back().weight);
  }
  for (const Part& stack : stacks) count_progress(stack);
  if (tensors.biases.empty()) return experts;
  const std::vector<mx::array> biases = expert_biases(tensors, count, n);
  for (int64_t e = 0; e < count; ++e) experts[e].bias = biases[e];
  return experts;
}

}  // namespace quire::models
