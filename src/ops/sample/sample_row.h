#pragma once
#include <cstdint>
#include <span>

#include "ops/sample/sample_params.h"

namespace quire::ops {

// One row's share of SampleOutput. The spans have the output's width.
struct SampledRow {
  int32_t token = -1;
  float logprob = 0;
  int32_t rank = 0;
  std::span<int32_t> top_ids;
  std::span<float> top_logprobs;
};

// A temperature below this is greedy, as in vLLM.
inline constexpr float kGreedyBelow = 1e-5f;

// Samples (or scores, with a forced token) one row of logits [V]. `pending` is the sequence's
// unread token, or -1. Uses scratch memory of the calling thread, which is kept for the next row.
void sample_row(const SampleRow& row, int32_t pending, const float* logits, int64_t vocab,
                SampledRow& out);

}  // namespace quire::ops
