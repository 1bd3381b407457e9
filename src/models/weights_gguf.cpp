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
  part.gguf =
      ops::GgufRows{.data = part.staged->data(),
                    .n = part.n,
                    .k = k,
                    .format = *format,
                    .int8_activations = int8_activations_ && ops::has_integer_codes(*format)};
  return part;
}

}  // namespace quire::models
