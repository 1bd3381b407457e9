#pragma once
#include <mlx/mlx.h>

#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// y = x * multiplier, then capped if softcap > 0: softcap * tanh(x * multiplier / softcap), but
// minus infinity, the logit of what is never to be sampled, stays that. For embeddings and logits
// that a model scales.
//   x  [...] float32, float16 or bfloat16; computed in float32 and rounded once
// Returns x's shape and dtype. Throws std::invalid_argument if a number is not finite or the cap is
// negative.
mx::array scale(const Context& context, const mx::array& x, float multiplier, float softcap = 0);

}  // namespace quire::ops
