#include "ops/sigmoid_gate/sigmoid_gate_reference.h"

namespace quire::ops {

mx::array sigmoid_gate_reference(const mx::array& x, const Columns& gate) {
  const int first = static_cast<int>(gate.first);
  const mx::array columns = mx::slice(gate.matrix, {0, first}, {x.shape(0), first + x.shape(1)});
  const mx::array open = mx::sigmoid(mx::astype(columns, mx::float32));
  return mx::astype(mx::astype(x, mx::float32) * open, x.dtype());
}

}  // namespace quire::ops
