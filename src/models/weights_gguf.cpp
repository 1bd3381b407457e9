// The part of WeightLoader that takes tensors in GGUF's block formats.
#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "formats/gguf/gguf.h"
#include "models/tensor_checks.h"
#include "models/weights.h"
#include "ops/linear/pack/stack_matrices.h"

namespace quire::models {

WeightLoader::Part WeightLoader::take_gguf_blocks(const std::string& weight, int64_t n, int64_t k,
                                                  int64_t stack) {
  const formats::RawTensor& tensor = take_any(weight);
  stack ? expect_shape(tensor, {stack, n, k}) : expect_shape(tensor, {n, k});
  if (int8_activations_)
    throw LoadError(where(tensor) + " is " + std::string(formats::dtype_name(tensor.dtype)) +
                    ": 8-bit activations go with affine weights only; leave them out");
  const auto format = ops::find_gguf_format(formats::gguf_type(tensor.dtype));
  QUIRE_CHECK(format.has_value()) << formats::dtype_name(tensor.dtype) << " is not packed";
  Part part{.n = tensor.shape[stack ? 1 : 0],
            .tensors = {&tensor},
            .staged = std::make_shared<formats::StagedTensor>(tensor)};
  part.gguf = ops::GgufRows{.data = part.staged->data(), .n = part.n, .k = k, .format = *format};
  return part;
}

// Whether two parts are in blocks of one format, or in none.
bool WeightLoader::is_alike(const Part& a, const Part& b) {
  if (!a.gguf || !b.gguf) return a.gguf.has_value() == b.gguf.has_value();
  return a.gguf->format == b.gguf->format;
}

// Parts that are not all in blocks stay apart inside one matrix, each as it is; neighbours that are
// alike, such as rows of single heads, are one.
std::optional<ops::PackedMatrix> WeightLoader::pack_mixed(const std::vector<Part>& parts,
                                                          bool interleave) {
  const bool any =
      std::ranges::any_of(parts, [](const Part& part) { return part.gguf.has_value(); });
  if (!any || !context_.device->host_memory()) return std::nullopt;
  std::vector<ops::PackedMatrix> packed;
  for (auto begin = parts.begin(), end = begin; begin != parts.end(); begin = end) {
    const auto is_other = [&](const Part& part) { return interleave || !is_alike(part, *begin); };
    end = std::find_if(begin + 1, parts.end(), is_other);
    packed.push_back(pack({begin, end}, /*interleave=*/false));
  }
  return ops::stack_matrices(context_, std::move(packed), interleave);
}

}  // namespace quire::models
