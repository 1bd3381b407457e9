#include "ops/causal_conv1d/causal_conv1d_reference.h"

namespace quire::ops {

ConvResult causal_conv1d_reference(const mx::array& x, const mx::array& weight,
                                   const mx::array& state, const BatchLayout& layout) {
  const int kernel = weight.shape(0), channels = weight.shape(1);
  mx::array pool = state;
  std::vector<mx::array> outputs;
  for (int64_t s = 0; s < layout.num_sequences; ++s) {
    const int begin = layout.cu_seqlens[s], end = layout.cu_seqlens[s + 1];
    if (begin == end) continue;
    const int slot = layout.state_slots[s];
    const mx::Shape first = {slot, 0, 0}, last = {slot + 1, kernel - 1, channels};
    const mx::array before =
        layout.positions[begin] == 0
            ? mx::zeros({kernel - 1, channels}, x.dtype())
            : mx::reshape(mx::slice(state, first, last), {kernel - 1, channels});
    const mx::array inputs =
        mx::concatenate({before, mx::slice(x, {begin, 0}, {end, channels})}, 0);
    const int tokens = end - begin;
    mx::array sum = mx::zeros({tokens, channels});
    for (int j = 0; j < kernel; ++j) {
      const mx::array shifted = mx::slice(inputs, {j, 0}, {j + tokens, channels});
      sum = sum + mx::astype(shifted, mx::float32) * mx::slice(weight, {j, 0}, {j + 1, channels});
    }
    outputs.push_back(mx::astype(sum * mx::sigmoid(sum), x.dtype()));
    const mx::array kept = mx::slice(inputs, {tokens, 0}, {tokens + kernel - 1, channels});
    pool = mx::slice_update(pool, mx::reshape(kept, {1, kernel - 1, channels}), first, last);
  }
  if (outputs.empty()) return {mx::zeros({0, channels}, x.dtype()), pool};
  return {mx::concatenate(outputs, 0), pool};
}

}  // namespace quire::ops
