#pragma once
#include <memory>
#include <vector>

#include "ops/linear/linear.h"
#include "ops/runtime/context.h"

namespace quire::ops {

// A matrix [N, K] for each head, all of one shape and weight format. On Metal the one entry stands
// for all of them, and its arrays have an axis [H] in front.
using HeadWeights = std::shared_ptr<const std::vector<PackedMatrix>>;

// What head_linear() takes. Throws std::invalid_argument unless there is a matrix and all are like
// the first.
HeadWeights stack_heads(const Context& context, std::vector<PackedMatrix> weights);

// A small product for each head: y[t, h] = W_h x[t, h, passed:], followed by x[t, h, :passed] as it
// is. Latent attention uses it twice: W_UK turns what a query's head asks for into the latent space
// (the rotated part of the query passes), and W_UV turns what comes back into the head's value.
//   x       [T, H, passed + K] in the weights' dtype
//   weights  as stack_heads() makes them
//   passed  not negative
// Returns [T, H, N + passed] in x's dtype. Throws std::invalid_argument if a shape or dtype does
// not fit.
//
// Bits: each product is linear()'s, so a row depends on nothing else in the call. On Metal it is
// MLX's.
mx::array head_linear(const Context& context, const mx::array& x, const HeadWeights& weights,
                      int64_t passed = 0);

}  // namespace quire::ops
