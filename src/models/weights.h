#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/quantization.h"
#include "ops/context.h"
#include "ops/linear/affine_matrix.h"
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
  // empty. A quantised weight ("X.weight" with "X.scales" and "X.biases") stays quantised; parts of
  // different formats are stacked in one that holds all exactly, as dense values if one is dense.
  // `interleave`: gate and up, for ops::LinearOptions::silu_mul.
  ops::LinearWeight linear(const std::vector<std::string>& weights,
                           const std::vector<std::string>& biases, int64_t n, int64_t k,
                           bool interleave = false);
  ops::LinearWeight linear(const std::string& weight, const std::string& bias, int64_t n,
                           int64_t k);
  // The same for each of `count` experts. A * in a name stands for the expert's index; a name
  // without one is a tensor of all experts, [count, n, k].
  std::vector<ops::LinearWeight> expert_linears(const std::vector<std::string>& weights,
                                                int64_t count, int64_t n, int64_t k,
                                                bool interleave = false);
  // Whether the checkpoint holds the tensor.
  bool has(const std::string& name) const { return checkpoint_.find(name) != nullptr; }
  // A vector [n] as float32.
  mx::array vector(const std::string& name, int64_t n);
  bool is_quantised(const std::string& weight) const;
  // A matrix [n, k] left where the checkpoint maps it; not quantised.
  ops::RowMatrix mapped_matrix(const std::string& name, int64_t n, int64_t k);

  // Throws LoadError naming the tensors that nothing took, except those in `ignored` (exact names).
  void finish(const std::vector<std::string>& ignored) const;
  size_t packed_bytes() const { return packed_bytes_; }

 private:
  // A part of a linear: rows as stored, dense or quantised.
  struct Part {
    int64_t n = 0;
    ops::RowMatrix dense = {};
    std::optional<ops::AffineRows> affine = std::nullopt;
    std::vector<const formats::RawTensor*> tensors = {};
  };

  const formats::RawTensor& take(const std::string& name);
  const formats::RawTensor& take_any(const std::string& name);
  // Rows of a tensor [n, k], or the first ones of [stack, n, k]. n < 0: as many rows as it has.
  Part take_part(const std::string& weight, int64_t n, int64_t k, int64_t stack = 0);
  Part take_affine(const std::string& weight, int64_t n, int64_t k, int64_t stack);
  // The parts of a linear with n rows.
  std::vector<Part> take_parts(const std::vector<std::string>& weights, int64_t n, int64_t k,
                               int64_t stack = 0);
  // The rows of another matrix of the stack.
  static Part part_of_stack(Part first, int64_t index);
  ops::PackedMatrix pack(const std::vector<Part>& parts, bool interleave) const;
  mx::array stack_biases(const std::vector<std::string>& biases, const std::vector<Part>& parts,
                         int64_t n);
  // The tensor has been copied: its pages are given back.
  void done(const formats::RawTensor& tensor);
  void count_progress(const formats::RawTensor& tensor);

  const ops::Context& context_;
  const formats::Checkpoint& checkpoint_;
  mx::Dtype dtype_;
  std::optional<formats::QuantizationConfig> quantization_;
  std::function<void(double)> progress_;
  std::set<std::string> taken_;
  uint64_t bytes_read_ = 0;
  size_t packed_bytes_ = 0;
};

// The dtype that a checkpoint's activations have: that of `weight`, or of its scales if it is
// quantised; nothing if there is no such tensor. Throws LoadError if it is no float.
std::optional<mx::Dtype> activation_dtype(const formats::Checkpoint& checkpoint,
                                          const std::string& weight);

// The MLX dtype of a float tensor; throws LoadError naming file and tensor for any other.
mx::Dtype float_dtype(const formats::RawTensor& tensor);

}  // namespace quire::models
