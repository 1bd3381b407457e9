// The part of WeightLoader that is about where weights lie: copies, or mapped files.
#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "models/tensor_checks.h"
#include "models/weights.h"
#include "ops/linear/mlx_matrix.h"

namespace quire::models {

void WeightLoader::count_packed(const ops::PackedMatrix& matrix) {
  packed_bytes_ += matrix.nbytes();
  bytes_in_place_ += ops::bytes_in_place(matrix);
}

std::optional<MappedWeights> WeightLoader::mapped_weights() const {
  if (!mapped_files_) return std::nullopt;
  return MappedWeights{.bytes = bytes_in_place_, .reason = mapped_files_->reason()};
}

std::shared_ptr<formats::StagedTensor> WeightLoader::stage(const formats::RawTensor& tensor) {
  if (mapped_files_ && tensor.alternating_rows == 0 && tensor.size > 0)
    if (auto snapshot = mapped_files_->of(*tensor.source))
      return std::make_shared<formats::StagedTensor>(tensor, std::move(snapshot));
  return std::make_shared<formats::StagedTensor>(tensor);
}

std::shared_ptr<const formats::StagedTensor> WeightLoader::load_staged(
    const formats::RawTensor& tensor) {
  auto staged = stage(tensor);
  staged->load_all(*context_.pool);
  return staged;
}

std::shared_ptr<const void> WeightLoader::Part::owner() const {
  if (copy || !staged) return nullptr;
  std::vector<std::shared_ptr<const formats::FileSnapshot>> snapshots;
  for (const formats::StagedTensor* tensor : std::initializer_list<const formats::StagedTensor*>{
           staged.get(), scales.get(), biases.get()}) {
    if (!tensor) continue;
    if (!tensor->snapshot()) return nullptr;
    snapshots.push_back(tensor->snapshot());
  }
  return std::make_shared<const decltype(snapshots)>(std::move(snapshots));
}

// A whole tensor in memory of the device.
std::shared_ptr<std::byte[]> WeightLoader::read_to_device(const formats::RawTensor& tensor) const {
  const std::shared_ptr<std::byte[]> memory = context_.device->allocate(tensor.size);
  if (context_.device->host_memory()) {
    tensor.read_finite(0, {memory.get(), tensor.size}, *context_.pool);
    return memory;
  }
  constexpr size_t kPiece = size_t{16} << 20;
  std::vector<std::byte> piece(std::min<size_t>(kPiece, tensor.size));
  for (size_t begin = 0; begin < tensor.size; begin += kPiece) {
    const size_t bytes = std::min<size_t>(kPiece, tensor.size - begin);
    tensor.read_finite(begin, {piece.data(), bytes}, *context_.pool);
    context_.device->upload(memory.get() + begin, piece.data(), bytes);
  }
  return memory;
}

StoredMatrix WeightLoader::stored_matrix(const std::string& name, int64_t n, int64_t k) {
  const auto& tensor = take(name);
  expect_shape(tensor, {n, k});
  StoredMatrix matrix = {.rows = {.n = n, .k = k, .dtype = float_dtype(tensor)}};
  read_matrix(tensor, matrix);
  packed_bytes_ += tensor.size;
  count_progress(tensor);
  return matrix;
}

void WeightLoader::read_matrix(const formats::RawTensor& tensor, StoredMatrix& matrix) {
  if (const auto staged = mapped_files_ ? stage(tensor) : nullptr; staged && staged->snapshot()) {
    staged->load_all(*context_.pool);
    matrix.rows.data = staged->data();
    matrix.memory = staged->snapshot();
    if (tensor.begin % matrix.rows.dtype.size() == 0) bytes_in_place_ += tensor.size;
  } else {
    const std::shared_ptr<std::byte[]> memory = read_to_device(tensor);
    matrix.rows.data = memory.get();
    matrix.memory = memory;
  }
}

}  // namespace quire::models
