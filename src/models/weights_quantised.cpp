// The quantised part of WeightLoader: what makes a weight quantised, and all that can be wrong with
// it.
#include "base/error.h"
#include "models/tensor_checks.h"
#include "models/weights.h"

namespace quire::models {
namespace {

constexpr const char* kOtherConfig =
    "; \"quantization\" in config.json does not fit the weights: take the config.json that came "
    "with them, or convert the model anew";

// [n, columns], or a stack of such.
std::vector<int64_t> stacked_shape(int64_t stack, int64_t n, int64_t columns) {
  return stack ? std::vector<int64_t>{stack, n, columns} : std::vector<int64_t>{n, columns};
}

// scales or biases: one for each group.
void expect_groups(const formats::RawTensor& tensor, const std::vector<int64_t>& expected,
                   const formats::QuantisedFormat& format) {
  if (tensor.shape == expected) return;
  throw LoadError(where(tensor) + " has shape " + shape_text(tensor.shape) + ", but " +
                  shape_text(expected) + " go with groups of " + std::to_string(format.group_size) +
                  kOtherConfig);
}

void expect_values(const formats::RawTensor& tensor, const std::vector<int64_t>& expected,
                   int64_t k, const formats::QuantisedFormat& format) {
  if (has_shape(tensor, expected)) return;
  throw LoadError(where(tensor) + " has shape " + shape_text(tensor.shape) +
                  ", but config.json asks for " + shape_text(expected) + ": " + std::to_string(k) +
                  " columns of " + std::to_string(format.bits) + " bits" + kOtherConfig);
}

ops::BlockFloat block_float_of(formats::QuantMode mode) {
  switch (mode) {
    case formats::QuantMode::kMxfp4:
      return ops::BlockFloat::kMxfp4;
    case formats::QuantMode::kMxfp8:
      return ops::BlockFloat::kMxfp8;
    case formats::QuantMode::kNvfp4:
      return ops::BlockFloat::kNvfp4;
    case formats::QuantMode::kAffine:
      break;
  }
  return ops::BlockFloat::kNone;
}

}  // namespace

bool WeightLoader::is_quantised(const std::string& weight) const {
  const formats::RawTensor* tensor = find(weight);
  if (tensor && (formats::is_blocks(tensor->dtype) || is_folder_values(*tensor))) return true;
  const bool scales = tensor && checkpoint_.find(scales_name(tensor->name)) != nullptr;
  const bool integers = tensor && tensor->dtype == formats::DType::kU32;
  if (!tensor || (!scales && !integers)) {
    if (tensor && quantization_ && quantization_->demands(layer_name(tensor->name))) {
      throw LoadError(where(*tensor) + " is not quantised, but \"quantization\" in config.json " +
                      "says that it is" + kNotOfOneModel);
    }
    return false;
  }
  if (!integers) {
    throw LoadError(where(*tensor) + " has dtype " +
                    std::string(formats::dtype_name(tensor->dtype)) + ", but there is " +
                    scales_name(tensor->name) +
                    ": a quantised weight is U32; convert the model anew");
  }
  if (!quantization_) {
    throw LoadError(where(*tensor) +
                    " is quantised, but config.json has no \"quantization\" with " +
                    "its bits and group_size; take the config.json that came with the weights");
  }
  return true;
}

bool WeightLoader::have_one_format(const std::string& weight, const std::string& other) const {
  const bool quantised = is_quantised(weight);
  if (quantised != is_quantised(other)) return false;
  if (!quantised) return true;
  const formats::RawTensor &a = *find(weight), &b = *find(other);
  if (formats::is_blocks(a.dtype) || formats::is_blocks(b.dtype)) return a.dtype == b.dtype;
  if (is_folder_values(a) != is_folder_values(b)) return false;
  if (is_folder_values(a))
    return folder_quantization_ && folder_quantization_->of_layer(layer_name(a.name)) ==
                                       folder_quantization_->of_layer(layer_name(b.name));
  return quantization_->of_layer(layer_name(a.name)) == quantization_->of_layer(layer_name(b.name));
}

WeightLoader::Part WeightLoader::take_quantised(const std::string& weight, int64_t n, int64_t k,
                                                int64_t stack) {
  const formats::RawTensor& values = take_any(weight);
  const auto format = quantization_->of_layer(layer_name(values.name));
  if (!format) {
    throw LoadError(where(values) +
                    " is quantised, but \"quantization\" in config.json says that it is not" +
                    kNotOfOneModel);
  }
  if (k % format->group_size != 0) {
    throw LoadError(where(values) + " has " + std::to_string(k) + " columns, which groups of " +
                    std::to_string(format->group_size) + " do not divide" + kOtherConfig);
  }
  expect_values(values, stacked_shape(stack, n, k * format->bits / 32), k, *format);
  const int64_t rows = values.shape[stack ? 1 : 0];
  const auto groups = stacked_shape(stack, rows, k / format->group_size);
  Part part{.n = rows, .tensors = {&values}, .staged = stage(values)};
  format->mode == formats::QuantMode::kAffine ? take_affine_scales(values, groups, k, *format, part)
                                              : take_float_scales(values, groups, k, *format, part);
  return part;
}

const formats::RawTensor& WeightLoader::take_beside(const formats::RawTensor& values,
                                                    const std::string& name,
                                                    const std::vector<int64_t>& groups,
                                                    const formats::QuantisedFormat& format) {
  if (!checkpoint_.find(name))
    throw LoadError(where(values) + " is quantised, but tensor " + name +
                    " is missing: take the whole checkpoint, or convert the model anew");
  const formats::RawTensor& tensor = take_any(name);
  expect_groups(tensor, groups, format);
  return tensor;
}

void WeightLoader::take_affine_scales(const formats::RawTensor& values,
                                      const std::vector<int64_t>& groups, int64_t k,
                                      const formats::QuantisedFormat& format, Part& part) {
  const auto& scales = take_beside(values, scales_name(values.name), groups, format);
  const auto& biases = take_beside(values, biases_name(values.name), groups, format);
  const mx::Dtype dtype = float_dtype(scales);
  if (scales.dtype != biases.dtype) {
    throw LoadError(where(biases) + " has dtype " + std::string(formats::dtype_name(biases.dtype)) +
                    ", but the scales have " + std::string(formats::dtype_name(scales.dtype)) +
                    "; convert the model anew");
  }
  part.tensors.insert(part.tensors.end(), {&scales, &biases});
  part.read = [this, &scales, &biases, k, format, dtype](Part& read) {
    read.scales = load_staged(scales);
    read.biases = load_staged(biases);
    read.affine = ops::AffineRows{.values = read.staged->data(),
                                  .scales = read.scales->data(),
                                  .biases = read.biases->data(),
                                  .n = read.n,
                                  .k = k,
                                  .format = {.bits = format.bits,
                                             .group_size = format.group_size,
                                             .scale_dtype = dtype,
                                             .int8_activations = int8_activations_}};
  };
}

WeightLoader::Part WeightLoader::block_float_part(const formats::RawTensor& values,
                                                  const formats::RawTensor& scales,
                                                  ops::BlockFloatRows rows) {
  rows.int8_activations = int8_activations_ && ops::is_e2m1(rows.format);
  return {.n = rows.n,
          .tensors = {&values, &scales},
          .staged = stage(values),
          .read = [this, &scales, rows = std::move(rows)](Part& part) {
            part.scales = load_staged(scales);
            part.block_float = rows;
            part.block_float->values = part.staged->data();
            part.block_float->scales = part.scales->data();
          }};
}

void WeightLoader::take_float_scales(const formats::RawTensor& values,
                                     const std::vector<int64_t>& groups, int64_t k,
                                     const formats::QuantisedFormat& format, Part& part) {
  const std::string mode = formats::mode_name(format.mode);
  const auto& scales = take_beside(values, scales_name(values.name), groups, format);
  if (scales.dtype != formats::DType::kU8)
    throw LoadError(where(scales) + " has dtype " + std::string(formats::dtype_name(scales.dtype)) +
                    ", but scales of mode " + mode + " are U8" + kOtherConfig);
  const std::string global = layer_name(values.name) + ".global_scale";
  if (checkpoint_.find(global))
    throw LoadError(where(values) + " goes with " + global + ": a scale of the whole tensor is " +
                    "not supported; convert the model without one");
  part = block_float_part(values, scales,
                          {.n = part.n, .k = k, .format = block_float_of(format.mode)});
}

WeightLoader::Part WeightLoader::dequantised(Part part) {
  if (part.affine && part.affine->format.per_token) refuse_rounding(*part.tensors[0]);
  const auto packed = pack_quantised({&part, 1}, /*interleave=*/false);
  if (!packed) return part;
  unpacked_.insert(part.tensors[0]->name);
  const std::shared_ptr<const std::byte[]> rows = ops::dequantise_rows(context_, *packed);
  return {.n = part.n,
          .dense = {.data = rows.get(), .n = part.n, .k = packed->k, .dtype = dtype_},
          .tensors = part.tensors,
          .copy = rows};
}

ops::PackedMatrix WeightLoader::pack(std::vector<Part> parts, bool interleave) {
  ops::PackedMatrix packed = pack_parts(std::move(parts), interleave);
  if (int8_activations_) note_activations(packed);
  return packed;
}

void WeightLoader::note_activations(const ops::PackedMatrix& matrix) {
  if (matrix.parts) {
    for (const ops::PackedMatrix& part : *matrix.parts) note_activations(part);
  } else if (matrix.rounds_activations()) {
    ++rounded_;
  } else if (matrix.block_float != ops::BlockFloat::kNone) {
    ++whole_[ops::block_float_format(matrix.block_float).name];
  } else {
    ++whole_[matrix.dtype == mx::float32    ? "float32"
             : matrix.dtype == mx::bfloat16 ? "bfloat16"
                                            : "float16"];
  }
}

std::string WeightLoader::whole_activations() const {
  std::string text;
  for (const auto& [format, count] : whole_)
    text += (text.empty() ? "" : ", ") + format + " (" + std::to_string(count) + ")";
  return text;
}

void WeightLoader::check_activations() const {
  if (!int8_activations_ || rounded_ > 0) return;
  throw LoadError(checkpoint_.dir() +
                  ": 8-bit activations go with weights that are whole numbers or 4-bit floats "
                  "times scales, and this model's are all " +
                  whole_activations() + "; leave them out");
}

}  // namespace quire::models
