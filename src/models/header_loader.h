#pragma once
#include <vector>

#include "models/weights.h"

namespace quire::models {

// A loader that makes all checks of names, shapes and dtypes, and reads nothing of matrices: what
// it returns of them has shapes and no data.
class HeaderLoader final : public WeightLoader {
 public:
  using WeightLoader::WeightLoader;

 private:
  Part with_contents(Part part, int64_t k) override;
  void read_matrix(const formats::RawTensor&, StoredMatrix&) override {}
  Part in_order(const Part& part, const ExpertTensors& tensors) const override;
  Part gathered(const Part& part, std::span<const WeightRows> order) const override;
  ops::PackedMatrix transposed_matrix(Part part) override;
  ops::PackedMatrix pack(std::vector<Part> parts, bool interleave) override;

  // [n, k], of the tensors of a part.
  static Part outline(const Part& part, int64_t n, int64_t k);
};

}  // namespace quire::models
