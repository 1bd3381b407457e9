#include "models/weights.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace quire::models {
namespace {

std::string where(const formats::RawTensor& tensor) {
  return tensor.file + ": tensor " + tensor.name;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + (shape[i] < 0 ? "*" : std::to_string(shape[i]));
  return text + "]";
}

// -1 stands for any length.
void expect_shape(const formats::RawTensor& tensor, const std::vector<int64_t>& expected) {
  const auto fits = [](int64_t length, int64_t wanted) { return wanted < 0 || length == wanted; };
  if (std::equal(tensor.shape.begin(), tensor.shape.end(), expected.begin(), expected.end(), fits))
    return;
  throw LoadError(where(tensor) + " has shape " + shape_text(tensor.shape) +
                  ", but config.json asks for " + shape_text(expected) +
                  "; the config and the weights are not of one model");
}

// Elements [0, n) of a float tensor as float32. Bytes may be unaligned.
void widen(const formats::RawTensor& tensor, float* out) {
  const int64_t n = tensor.num_elements();
  const std::byte* bytes = tensor.bytes.data();
  if (tensor.dtype == formats::DType::kF32) {
    std::memcpy(out, bytes, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    if (tensor.dtype == formats::DType::kBF16) {
      mx::bfloat16_t x;
      std::memcpy(&x, bytes + 2 * i, sizeof x);
      out[i] = static_cast<float>(x);
    } else {
      mx::float16_t x;
      std::memcpy(&x, bytes + 2 * i, sizeof x);
      out[i] = static_cast<float>(x);
    }
  }
}

}  // namespace

mx::Dtype float_dtype(const formats::RawTensor& tensor) {
  switch (tensor.dtype) {
    case formats::DType::kF32:
      return mx::float32;
    case formats::DType::kF16:
      return mx::float16;
    case formats::DType::kBF16:
      return mx::bfloat16;
    default:
      throw LoadError(where(tensor) + " has dtype " +
                      std::string(formats::dtype_name(tensor.dtype)) +
                      "; supported are F32, F16 and BF16. Convert the checkpoint to one of these");
  }
}

WeightLoader::WeightLoader(const ops::Context& context, const formats::Checkpoint& checkpoint,
                           mx::Dtype dtype, std::function<void(double)> progress)
    : context_(context), checkpoint_(checkpoint), dtype_(dtype), progress_(std::move(progress)) {}

const formats::RawTensor& WeightLoader::take(const std::string& name) {
  const formats::RawTensor* tensor = checkpoint_.find(name);
  if (!tensor) {
    throw LoadError(checkpoint_.dir() + ": tensor " + name + " is missing, and " +
                    checkpoint_.config().architectures.front() +
                    " needs it; the checkpoint is incomplete or of another architecture");
  }
  float_dtype(*tensor);
  taken_.insert(name);
  return *tensor;
}

void WeightLoader::count_progress(const formats::RawTensor& tensor) {
  bytes_read_ += tensor.bytes.size();
  if (progress_)
    progress_(static_cast<double>(bytes_read_) / static_cast<double>(checkpoint_.total_bytes()));
}

ops::LinearWeight WeightLoader::linear(const std::vector<std::string>& weights,
                                       const std::vector<std::string>& biases, int64_t n,
                                       int64_t k) {
  std::vector<ops::RowMatrix> parts;
  int64_t rows = 0;
  const formats::RawTensor* last = nullptr;
  for (const auto& name : weights) {
    last = &take(name);
    expect_shape(*last, {weights.size() == 1 ? n : -1, k});
    parts.push_back(
        {.data = last->bytes.data(), .n = last->shape[0], .k = k, .dtype = float_dtype(*last)});
    rows += last->shape[0];
  }
  if (rows != n) expect_shape(*last, {last->shape[0] + n - rows, k});
  ops::LinearWeight result{.weight = ops::pack_matrix(context_, parts, dtype_),
                           .bias = std::nullopt};
  packed_bytes_ += result.weight.nbytes();
  for (const auto& name : weights) count_progress(take(name));
  if (!biases.empty()) {
    std::vector<float> values(static_cast<size_t>(n));
    int64_t filled = 0;
    for (size_t i = 0; i < biases.size(); ++i) {
      const auto& tensor = take(biases[i]);
      expect_shape(tensor, {parts[i].n});
      widen(tensor, values.data() + filled);
      filled += parts[i].n;
    }
    result.bias = mx::array(values.data(), {static_cast<int>(n)}, mx::float32);
  }
  return result;
}

ops::LinearWeight WeightLoader::linear(const std::string& weight, const std::string& bias,
                                       int64_t n, int64_t k) {
  return linear(std::vector{weight}, bias.empty() ? std::vector<std::string>{} : std::vector{bias},
                n, k);
}

mx::array WeightLoader::vector(const std::string& name, int64_t n) {
  const auto& tensor = take(name);
  expect_shape(tensor, {n});
  std::vector<float> values(static_cast<size_t>(n));
  widen(tensor, values.data());
  packed_bytes_ += values.size() * sizeof(float);
  count_progress(tensor);
  return mx::array(values.data(), {static_cast<int>(n)}, mx::float32);
}

ops::RowMatrix WeightLoader::mapped_matrix(const std::string& name, int64_t n, int64_t k) {
  const auto& tensor = take(name);
  expect_shape(tensor, {n, k});
  count_progress(tensor);
  return {.data = tensor.bytes.data(), .n = n, .k = k, .dtype = float_dtype(tensor)};
}

void WeightLoader::finish(const std::vector<std::string>& ignored) const {
  const std::set<std::string> skip(ignored.begin(), ignored.end());
  std::string names;
  int count = 0;
  for (const auto& name : checkpoint_.names()) {
    if (taken_.contains(name) || skip.contains(name)) continue;
    if (++count <= 8) names += (names.empty() ? "" : ", ") + name;
  }
  if (count == 0) return;
  throw LoadError(checkpoint_.dir() + ": " + std::to_string(count) + " tensors that " +
                  checkpoint_.config().architectures.front() + " does not use: " + names +
                  (count > 8 ? ", ..." : "") +
                  "; the checkpoint is of another architecture than config.json says");
}

}  // namespace quire::models
