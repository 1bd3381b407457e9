#pragma once
#include "ops/linear/linear.h"

namespace quire::ops {

// An interleaved matrix as a plain one, on the same memory: linear() of it yields the gates and ups
// themselves, as a step needs them that adds to them before the gate. Its rows lie as they are
// packed, a panel of 16 gates and the panel of their ups in turn, each half padded to whole panels;
// those of PackedMatrix::parts are all gates, then all ups.
PackedMatrix ungated(const PackedMatrix& interleaved);
// The same with the bias in that order.
LinearWeight ungated(const Context& context, const LinearWeight& interleaved);

// What linear() with the gate would yield, bit for bit, of the product with the ungated matrix.
//   y  [T, ungated(interleaved).n]
// Returns [T, N/2] in y's dtype.
mx::array gate_ungated(const Context& context, const mx::array& y, const PackedMatrix& interleaved,
                       const Gate& gate);

}  // namespace quire::ops
