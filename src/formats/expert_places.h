#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "formats/checkpoint.h"

namespace quire::formats {

// A matrix [count, columns] in a tensor. Its element (i, j) is the tensor's element
// `first + i * row_step + j * column_step`.
struct MatrixView {
  const RawTensor* tensor = nullptr;
  int64_t first = 0, count = 0, columns = 0;
  int64_t row_step = 0, column_step = 1;
  int64_t element_bytes() const;
  uint64_t row_bytes() const { return static_cast<uint64_t>(columns * element_bytes()); }
  uint64_t bytes() const { return static_cast<uint64_t>(count) * row_bytes(); }
  // Reads its rows [row, row + out.size() / row_bytes()), one after the other. Throws LoadError.
  void read(int64_t row, std::span<std::byte> out, ThreadPool& pool) const;
};

// The tensor as a matrix of its last axis. A scalar is one row.
MatrixView view_of(const RawTensor& tensor);

// Where mlx-lm stores a matrix: "model.layers.0.mlp.up_proj.weight", all of it or, for experts, one
// of the matrices that "model.layers.0.mlp.switch_mlp.up_proj.weight" [E, n, k] stacks.
struct Place {
  std::string tensor;
  int64_t expert = -1;  // -1: the matrix is all of it
  MatrixView matrix;
};

// The places of what a tensor of experts holds, or none if it is no such tensor. Published
// checkpoints have one tensor an expert and matrix, or one for all experts of a layer with gate and
// up beside each other, by rows or by columns (gpt-oss and Llama 4 store their experts transposed).
std::vector<Place> places_of_experts(const HfConfig& config, const RawTensor& tensor);

}  // namespace quire::formats
