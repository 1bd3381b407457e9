#pragma once
#include <optional>

#include "ops/layout/batch_layout.h"
#include "ops/layout/kv_cache.h"
#include "ops/runtime/context.h"

namespace quire::ops {

struct AttentionParams {
  float scale = 1.0f;  // on q.k, usually D^-1/2
  // A query at position i sees the keys at [i - window_left, i + window_right]; -1: no limit.
  int64_t window_left = -1, window_right = -1;
  // > 0: nor does it see keys before the last multiple of so many positions, its own position
  // included: chunked attention (Llama 4).
  int64_t window_step = 0;
  bool causal = true;    // as window_right = 0, whatever that is
  float softcap = 0.0f;  // > 0: scores become softcap * tanh(score / softcap) before masking
  // [H] float32: an extra logit per head that takes part in the softmax sum only.
  std::optional<mx::array> sinks = std::nullopt;
  // [H] or [S, H] float32: scores (capped ones, if they are) get -slope * |i - j| for the key at
  // position j, which is ALiBi.
  std::optional<mx::array> alibi_slopes = std::nullopt;
};

struct AttentionWithLse {
  mx::array out;  // [T, H, Dv]
  // [H, T] float32: natural logarithm of the sum of exp(score) over the keys that the row sees, its
  // head's sink included. -infinity if there are none.
  mx::array lse;
};

// Attention of all sequences of the step over paged memory; prefill chunks and decode rows
// in one call.
//   q   [T, H, D] of any float dtype; query row t is at position layout->positions[t] of its
//       sequence, whose rows are consecutive positions; the first may be negative (more queries
//       than keys, aligned at their ends)
//   kv  pools [N, P, K, D] that already hold this step's tokens, of any float dtype or of codes; H
//       is a multiple of K. Latent attention (MLA, arXiv:2405.04434 with W_UK and W_UV absorbed) is
//       kv.values_in_keys with K = 1: a token has one row, for all heads, whose first Dv elements
//       are its value
// Returns [T, H, Dv] in q's dtype; a row that sees no key is 0. Throws std::invalid_argument if a
// shape, dtype or parameter does not fit (D and Dv multiples of 8 up to 576; scale >= 0).
//
// Bits (the arithmetic is the same for every query row, whatever else is in the call): scores as in
// linear(); the keys are walked in chunks with edges at absolute multiples of 256 tokens; each
// chunk has its own maximum m (of scores, or with slopes of score * scale - slope * distance by one
// fma), p = 2^((s-m)*c), l = sum of p in 16 lanes (lane = token mod 16) and a fixed tree, p rounded
// to the pool's dtype, then p V per 32 tokens in an even and an odd chain from 0; chunks merge in
// ascending order. attention_model_test.cpp has it one operation at a time.
// On CPUs with AVX512-BF16 and no AMX (use_avx512_bf16()), bfloat16 queries over bfloat16 pools
// have another order of sums: a score is one chain from 0 over the pairs (2i, 2i + 1) of d in
// ascending order, p V within a chunk one chain from 0 over such pairs of tokens. Of a pair
// `vdpbf16ps` adds the odd product before the even one. All else is the same.
// Of FP8 pools: scores of codes times the keys' scales; p times the values' scales, rounded to
// bfloat16; the rest as for bfloat16 with AMX, everywhere. Of int8 pools: a query is 16-bit
// integers times absmax / 32639; a row's p times the values' scales within a chunk likewise with
// their maximum / 65535; sums over codes are exact.
// Values in keys: the same arithmetic as on a copy of them in a pool of their own, with the keys'
// scales.
mx::array paged_attention(const Context& context, const mx::array& q, const PagedKv& kv,
                          const BatchLayoutPtr& layout, const AttentionParams& params);
AttentionWithLse paged_attention_with_lse(const Context& context, const mx::array& q,
                                          const PagedKv& kv, const BatchLayoutPtr& layout,
                                          const AttentionParams& params);

}  // namespace quire::ops
