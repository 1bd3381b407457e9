#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "ops/context.h"
#include "ops/linear/linear.h"

namespace quire::models {

namespace mx = mlx::core;

// Takes tensors out of a checkpoint by name, checks shape and dtype, and packs them for the
// kernels. Remembers what was taken: finish() refuses a checkpoint with tensors that the model does
// not use.
class WeightLoader {
 public:
  WeightLoader(const ops::Context& context, const formats::Checkpoint& checkpoint, mx::Dtype dtype,
               std::function<void(double)> progress);

  // Rows of `weights` stacked: [n, k] in all, packed in the model's dtype. `biases` likewise, or
  // empty.
  ops::LinearWeight linear(const std::vector<std::string>& weights,
                           const std::vector<std::string>& biases, int64_t n, int64_t k);
  ops::LinearWeight linear(const std::string& weight, const std::string& bias, int64_t n,
                           int64_t k);
  // A vector [n] as float32.
  mx::array vector(const std::string& name, int64_t n);
  // A matrix [n, k] left where the checkpoint maps it.
  ops::RowMatrix mapped_matrix(const std::string& name, int64_t n, int64_t k);

  // Throws LoadError naming the tensors that nothing took, except those in `ignored` (exact names).
  void finish(const std::vector<std::string>& ignored) const;
  size_t packed_bytes() const { return packed_bytes_; }

 private:
  const formats::RawTensor& take(const std::string& name);
  void count_progress(const formats::RawTensor& tensor);

  const ops::Context& context_;
  const formats::Checkpoint& checkpoint_;
  mx::Dtype dtype_;
  std::function<void(double)> progress_;
  std::set<std::string> taken_;
  uint64_t bytes_read_ = 0;
  size_t packed_bytes_ = 0;
};

// The MLX dtype of a float tensor; throws LoadError naming file and tensor for any other.
mx::Dtype float_dtype(const formats::RawTensor& tensor);

}  // namespace quire::models
