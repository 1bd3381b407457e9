// The part of WeightLoader that takes tensors in GGUF's block formats.
#include <algorithm>

#include "base/error.h"
#include "models/tensor_checks.h"
#include "models/weights.h"
#include "ops/linear/pack/stack_matrices.h"

namespace quire::models {
namespace {

ops::GgufFormat format_of(formats::DType dtype) {
  switch (dtype) {
    case formats::DType::kQ4_0:
      return ops::GgufFormat::kQ4_0;
    case formats::DType::kQ4_1:
      return ops::GgufFormat::kQ4_1;
    case formats::DType::kQ5_0:
      return ops::GgufFormat::kQ5_0;
    case formats::DType::kQ5_1:
      return ops::GgufFormat::kQ5_1;
    case formats::DType::kQ8_0:
      return ops::GgufFormat::kQ8_0;
    case formats::DType::kQ2K:
      return ops::GgufFormat::kQ2_K;
    case formats::DType::kQ3K:
      return ops::GgufFormat::kQ3_K;
    case formats::DType::kQ4K:
      return ops::GgufFormat::kQ4_K;
    case formats::DType::kQ5K:
      return ops::GgufFormat::kQ5_K;
    case formats::DType::kQ6K:
      return ops::GgufFormat::kQ6_K;
    case formats::DType::kIq4Nl:
      return ops::GgufFormat::kIq4Nl;
    case formats::DType::kIq4Xs:
      return ops::GgufFormat::kIq4Xs;
    case formats::DType::kMxfp4:
      return ops::GgufFormat::kMxfp4;
    default:
      return ops::GgufFormat::kNone;
  }
}

}  // namespace

WeightLoader::Part WeightLoader::take_gguf_blocks(const std::string& weight, int64_t n, int64_t k,
                                                  int64_t stack) {
  const formats::RawTensor& tensor = take_any(weight);
  stack ? expect_shape(tensor, {stack, n, k}) : expect_shape(tensor, {n, k});
  if (int8_activations_)
    throw LoadError(where(tensor) + " is " + std::string(formats::dtype_name(tensor.dtype)) +
                    ": 8-bit activations go with affine weights only; leave them out");
  Part part{.n = tensor.shape[stack ? 1 : 0],
            .tensors = {&tensor},
            .staged = std::make_shared<formats::StagedTensor>(tensor)};
  part.gguf = ops::GgufRows{
      .data = part.staged->data(), .n = part.n, .k = k, .format = format_of(tensor.dtype)};
  return part;
}

// Parts that are not all in blocks stay apart inside one matrix, each as it is.
std::optional<ops::PackedMatrix> WeightLoader::pack_mixed(const std::vector<Part>& parts,
                                                          bool interleave) {
  const bool any =
      std::ranges::any_of(parts, [](const Part& part) { return part.gguf.has_value(); });
  if (!any || !context_.device->host_memory()) return std::nullopt;
  std::vector<ops::PackedMatrix> packed;
  for (const Part& part : parts) packed.push_back(pack({part}, /*interleave=*/false));
  return ops::stack_matrices(context_, std::move(packed), interleave);
}

}  // namespace quire::models
