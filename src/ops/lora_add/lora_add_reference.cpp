#include "ops/lora_add/lora_add_reference.h"

#include "ops/linear/linear_reference.h"
#include "ops/rms_norm/rms_norm_reference.h"

namespace quire::ops {

mx::array lora_add_reference(const mx::array& x, const mx::array& y, const LoraWeights& weights,
                             const AdapterRows& rows,
                             const std::optional<LinearOptions::Norm>& norm) {
  const mx::array in = norm ? rms_norm_reference(x, norm->weight, norm->eps) : x;
  mx::array sum = mx::astype(y, mx::float32);
  for (const AdapterRows::Group& group : rows.groups) {
    const auto& pair = weights.at(static_cast<size_t>(group.adapter));
    if (!pair) continue;
    const mx::array index(group.rows.data(), {static_cast<int>(group.rows.size())}, mx::int32);
    const mx::array low = linear_reference(mx::take(in, index, 0), {.weight = pair->a}, y.dtype());
    const mx::array added = linear_reference(low, {.weight = pair->b}, y.dtype());
    const mx::array updates = mx::expand_dims(mx::astype(added, mx::float32), 1);
    sum = mx::scatter_add(sum, index, updates, 0);
  }
  return mx::astype(sum, y.dtype());
}

}  // namespace quire::ops
