#pragma once
#include <mlx/mlx.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// One distinct token of a sequence's history, for penalties.
struct TokenCount {
  int32_t token = 0;
  int32_t in_output = 0;   // how often the model has produced it
  bool in_prompt = false;  // whether the prompt has it (repetition penalty only)
};

// How one row of logits becomes a token. Defaults are greedy without any change to the logits.
struct SampleRow {
  float temperature = 0.0f;  // 0: greedy
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f, min_p = 0.0f;
  float repetition_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
  uint64_t seed = 0;                     // with `position` the key of this row's random numbers
  int64_t position = 0;                  // absolute position of the token to sample
  std::vector<TokenCount> history = {};  // only if a penalty is on
  int32_t pending_row = -1;  // >= 0: previous[pending_row] counts as one more produced token
  std::vector<std::pair<int32_t, float>> logit_bias = {};
  std::vector<int32_t> banned = {};  // never sampled (stop tokens before min_tokens, bad words)
  // {a, b}: b is never sampled if previous[pending_row] is a.
  std::vector<std::pair<int32_t, int32_t>> banned_after = {};
  // Bit i of word i/32: token i is allowed; null: all are.
  std::shared_ptr<const std::vector<uint32_t>> mask = nullptr;
  int32_t forced_token = -1;      // >= 0: do not sample, score this token (prompt logprobs)
  int32_t num_top_logprobs = -1;  // -1: no logprobs; n: the chosen token's and the n best
};

using SampleRows = std::shared_ptr<const std::vector<SampleRow>>;

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
