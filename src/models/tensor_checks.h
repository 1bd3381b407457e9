#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "formats/finite.h"
#include "formats/folder_quantization.h"
#include "formats/raw_tensor.h"

namespace quire::models {

using formats::expect_finite;
using formats::title;
using formats::where;

// "[96, 64]"; -1 is written as *.
std::string shape_text(const std::vector<int64_t>& shape);

// Whether the tensor has this shape; -1 stands for any length.
bool has_shape(const formats::RawTensor& tensor, const std::vector<int64_t>& expected);

// What asks for the shapes of tensors: a GGUF file's metadata, or config.json.
const char* config_of(const formats::RawTensor& tensor);
inline constexpr const char* kNotOfOneModel = "; the config and the weights are not of one model";

// Throws LoadError unless the tensor has this shape; -1 stands for any length.
void expect_shape(const formats::RawTensor& tensor, const std::vector<int64_t>& expected);

// Throws LoadError for a weight that becomes dense, whose activations the config asks to round.
[[noreturn]] void refuse_rounding(const formats::RawTensor& values);

// "X.scales" and "X.biases" of the weight "X.weight"; its layer "X".
std::string scales_name(const std::string& weight);
std::string biases_name(const std::string& weight);
std::string layer_name(const std::string& weight);
// How names of quantised values end in folders that were made for GPUs, in place of ".weight";
// and whether a tensor holds such values (also a weight of bytes, signed or not, or of 8-bit
// floats).
inline constexpr const char* kFolderSuffixes[] = {".qweight", ".weight_packed"};
bool is_folder_values(const formats::RawTensor& tensor);
// What stands beside a weight "X.weight" of GGUF's NVFP4: a number for each of its matrices, and
// what activations would be rounded by.
inline constexpr const char *kGgufScale = ".scale", *kGgufInputScale = ".input_scale";
// Whether a matrix of kFp8 with k columns can stay in 8 bits: scales are of whole groups of
// columns.
bool is_packed_float8(const formats::FolderScheme& scheme, int64_t k);
// "X.weight" of "X.scales" and "X.biases"; any other name as it is.
std::string weight_name(const std::string& name);
// Whether "X" is among the layers for a tensor "X.weight", "X.weight_scale", "X.qzeros", ...
bool is_of_layer(const std::string& name, const std::set<std::string>& layers);

// "experts.3.down_proj.weight" of "experts.*.down_proj.weight"; a name without * as it is.
std::string expert_name(const std::string& pattern, int64_t expert);

}  // namespace quire::models
