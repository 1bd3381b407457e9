#pragma once
#include <optional>

#include "ops/batch_layout.h"
#include "ops/context.h"
#include "ops/kv_cache.h"

namespace quire::ops {

struct AttentionParams {
  float scale = 1.0f;        // on q.k, usually D^-1/2
  int64_t window_left = -1;  // a query at position i sees keys from i - window_left on; -1: all
  float softcap = 0.0f;      // > 0: scores become softcap * tanh(score / softcap) before masking
  // [H] float32: an extra logit per head that takes part in the softmax sum only.
  std::optional<mx::array> sinks = std::nullopt;
};

// Causal attention of all sequences of the step over paged memory; prefill chunks and decode rows
// in one call.
//   q   [T, H, D] of any float dtype; query row t is at position layout->positions[t] of its
//       sequence, whose rows are consecutive positions
//   kv  pools [N, P, K, D] that already hold this step's tokens; H is a multiple of K
// Returns [T, H, Dv] in q's dtype; a row that sees no key is 0. Throws std::invalid_argument if a
// shape, dtype or parameter does not fit (D and Dv multiples of 8 up to 512; scale >= 0).
//
// Bits (the arithmetic is the same for every query row, whatever else is in the call): scores as in
// linear(); the keys are walked in chunks with edges at absolute multiples of 256 tokens; each
// chunk has its own maximum m, p = 2^((s-m)*c), l = sum of p in 16 lanes (lane = token mod 16) and
// a fixed tree, p rounded to the pool's dtype, then p V per 32 tokens in an even and an odd chain
// from 0; chunks merge in ascending order. attention_model_test.cpp has it one operation at a time.
mx::array paged_attention(const Context& context, const mx::array& q, const PagedKv& kv,
                          const BatchLayoutPtr& layout, const AttentionParams& params);

}  // namespace quire::ops
