#pragma once
#include <mlx/mlx.h>

#include <cstdint>
#include <variant>

#include "ops/layout/kv_cache.h"

namespace quire::ops {

namespace mx = mlx::core;

// What one slot of a gated-delta-net layer holds.
struct RecurrentStateShape {
  int64_t conv_dim = 0;     // channels of the causal convolution
  int64_t conv_kernel = 0;  // its taps, at least 2; the state holds the last conv_kernel - 1 inputs
  int64_t v_heads = 0, v_dim = 0, k_dim = 0;

  int64_t recurrent_bytes() const { return v_heads * v_dim * k_dim * int64_t{sizeof(float)}; }
  int64_t conv_bytes(mx::Dtype dtype) const {
    return (conv_kernel - 1) * conv_dim * static_cast<int64_t>(mx::size_of(dtype));
  }
  bool operator==(const RecurrentStateShape&) const = default;
};

// The state pool of one gated-delta-net layer: one slot per sequence, updated in place. As with
// PagedKv, ops return new handles to the same memory and every later reader takes those; an old
// handle must not be read again.
//
// BatchLayout::state_slots names each sequence's slot. The state in a slot is that after all tokens
// before the sequence's first one of the step; a sequence whose first token of the step has
// position 0 starts from zeros, whatever its slot holds (it may be another sequence's old state).
struct RecurrentState {
  // [slots, v_heads, v_dim, k_dim] float32; the order inside a slot is the kernel's choice, but a
  // slot's state is in its own bytes alone.
  mx::array recurrent;
  mx::array conv;  // [slots, conv_kernel - 1, conv_dim] in the model's dtype
};

// An uninitialised pool (pages are committed when they are first written), the host's without a
// device. Throws
// std::invalid_argument if an axis is empty or does not fit.
RecurrentState make_recurrent_state(int64_t slots, const RecurrentStateShape& shape,
                                    mx::Dtype dtype, Device* device = nullptr);

// What a layer keeps between steps.
using LayerCache = std::variant<PagedKv, RecurrentState>;

}  // namespace quire::ops
