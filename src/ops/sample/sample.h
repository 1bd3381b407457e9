#pragma once
#include <mlx/mlx.h>

#include <optional>
#include <span>
#include <vector>

#include "ops/runtime/context.h"
#include "ops/sample/sample_params.h"

namespace quire::ops {

namespace mx = mlx::core;

// Logprobs are log_softmax of the raw logits, before penalties, bias and temperature, as vLLM's
// default.
struct SampleOutput {
  mx::array tokens;    // [R] int32
  mx::array logprobs;  // [R] float32: of the chosen token; 0 if the row did not ask
  mx::array
      ranks;  // [R] int32: 1 + number of tokens with a greater logit; 0 if the row did not ask
  mx::array top_ids;  // [R, max(1, most top logprobs asked)] int32, best first; -1 beyond what the
                      // row asked for
  mx::array top_logprobs;  // the same shape, float32

  // All of them, for the outputs of graphs; and back.
  std::vector<mx::array> arrays() const { return {tokens, logprobs, ranks, top_ids, top_logprobs}; }
  static SampleOutput from(std::span<const mx::array> a) { return {a[0], a[1], a[2], a[3], a[4]}; }
};

// Turns logits [R, V] float32 into one token a row. Each row depends on its own parameters and
// logits only: a row of a mixed batch equals the same row alone, bit for bit. Order: penalties,
// bias, mask and bans, temperature, then top_k, top_p, min_p as vLLM defines them; ties go to the
// lower token id. A NaN logit counts as -inf; a row without a finite one yields token -1. Ids
// outside the vocabulary in history, bias and bans have no effect. `previous` [R'] int32 holds the
// last step's tokens (see pending_row). The random number is Philox4x32-10 (Salmon et al. 2011) of
// (seed, position): no state, nothing to discard. Throws std::invalid_argument if a shape, dtype,
// forced token, pending row or mask does not fit.
SampleOutput sample(const Context& context, const mx::array& logits, const SampleRows& rows,
                    const std::optional<mx::array>& previous);

}  // namespace quire::ops
