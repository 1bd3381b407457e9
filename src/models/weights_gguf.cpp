// The part of WeightLoader that takes tensors in GGUF's block formats.
#include "base/check.h"
#include "formats/gguf/gguf.h"
#include "models/tensor_checks.h"
#include "models/weights.h"

namespace quire::models {

WeightLoader::Part WeightLoader::take_gguf_blocks(const std::string& weight, int64_t n, int64_t k,
                                                  int64_t stack) {
  const formats::RawTensor& tensor = take_any(weight);
  stack ? expect_shape(tensor, {stack, n, k}) : expect_shape(tensor, {n, k});
  const auto format = ops::find_gguf_format(formats::gguf_type(tensor.dtype));
  QUIRE_CHECK(format.has_value()) << formats::dtype_name(tensor.dtype) << " is not packed";
  Part part{.n = tensor.shape[stack ? 1 : 0],
            .tensors = {&tensor},
            .staged = std::make_shared<formats::StagedTensor>(tensor)};
  if (*format == ops::GgufFormat::kNvfp4)
    part.multipliers = take_multipliers(tensor, stack ? stack : 1);
  part.gguf =
      ops::GgufRows{.data = part.staged->data(),
                    .n = part.n,
                    .k = k,
                    .format = *format,
                    .multiplier = part.multipliers.empty() ? 1.0f : part.multipliers.front(),
                    .int8_activations = int8_activations_};
  return part;
}

// llama.cpp multiplies products by these, and takes 1 where there are none.
std::vector<float> WeightLoader::take_multipliers(const formats::RawTensor& values,
                                                  int64_t matrices) {
  const std::string stem = layer_name(values.name);
  // How activations would be rounded.
  if (checkpoint_.find(stem + kGgufInputScale))
    (void)take_floats(stem + kGgufInputScale, {matrices});
  if (!checkpoint_.find(stem + kGgufScale))
    return std::vector<float>(static_cast<size_t>(matrices), 1.0f);
  return take_floats(stem + kGgufScale, {matrices});
}

}  // namespace quire::models
