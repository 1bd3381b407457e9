#include "models/header_loader.h"

namespace quire::models {

WeightLoader::Part HeaderLoader::outline(const Part& part, int64_t n, int64_t k) {
  return {.n = n, .dense = {.n = n, .k = k}, .tensors = part.tensors};
}

WeightLoader::Part HeaderLoader::with_contents(Part part, int64_t k) {
  return outline(part, part.n, k);
}

WeightLoader::Part HeaderLoader::in_order(const Part& part, const ExpertTensors& tensors) const {
  return tensors.transposed ? outline(part, part.dense.k, part.n) : part;
}

WeightLoader::Part HeaderLoader::gathered(const Part& part,
                                          std::span<const WeightRows> order) const {
  int64_t n = 0;
  for (const WeightRows& rows : order) n += rows.count;
  return outline(part, n, part.dense.k);
}

ops::PackedMatrix HeaderLoader::transposed_matrix(Part part) {
  return pack({outline(part, part.dense.k, part.n)}, /*interleave=*/false);
}

ops::PackedMatrix HeaderLoader::pack(std::vector<Part> parts, bool interleave) {
  ops::PackedMatrix out{.k = parts.front().dense.k, .dtype = dtype(), .interleaved = interleave};
  for (const Part& part : parts) out.n += part.n;
  return out;
}

}  // namespace quire::models
