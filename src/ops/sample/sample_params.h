#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

// What sampling is told of each row; free of MLX.
namespace quire::ops {

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
  uint64_t seed = 0;     // with `position` the key of this row's random numbers
  int64_t position = 0;  // absolute position of the token to sample
  // Rows with one number, not 0, differ in their positions alone.
  uint64_t constant = 0;
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

}  // namespace quire::ops
