#pragma once
#include <initializer_list>
#include <vector>

#include "formats/raw_tensor.h"

namespace quire::models {

// How messages about tensors of folders that were made for GPUs end.
inline constexpr const char* kOtherConfig =
    "; \"quantization_config\", in config.json or a file beside it, does not fit the weights: take "
    "the one that came with them";

// Throws LoadError unless the tensor has one of the dtypes and this shape; -1 stands for any
// length.
void expect_tensor(const formats::RawTensor& tensor, std::initializer_list<formats::DType> dtypes,
                   const std::vector<int64_t>& shape);

}  // namespace quire::models
