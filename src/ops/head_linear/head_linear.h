#pragma once
#include <memory>
#include <vector>

#include "ops/linear/linear.h"
#include "ops/runtime/context.h"

namespace quire::ops {

// A matrix [N, K] for each head, all of one shape and weight format.
using HeadWeights = std::shared_ptr<const std::vector<PackedMatrix>>;

// Throws std::invalid_argument unless there is a matrix and all are like the first.
void check_head_weights(const std::vector<PackedMatrix>& weights);

// A small product for each head: y[t, h] = W_h x[t, h, passed:], followed by x[t, h, :passed] as it
// is. Latent attention uses it twice: W_UK turns what a query's head asks for into the latent space
// (the rotated part of the query passes), and W_UV turns what comes back into the head's value.
//   x       [T, H, passed + K] in the weights' dtype
//   passed  not negative
// Returns [T, H, N + passed] in x's dtype. Throws std::invalid_argument if a shape or dtype does
// not fit.
//
// Bits: each product is linear()'s, so a row depends on nothing else in the call.
mx::array head_linear(const Context& context, const mx::array& x, const HeadWeights& weights,
                      int64_t passed = 0);

}  // namespace quire::ops
