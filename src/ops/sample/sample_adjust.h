#pragma once
#include "ops/sample/sample_params.h"

namespace quire::ops {

// Whether the row's logits are anything else than the model's: penalties, bias, mask or bans.
bool changes_logits(const SampleRow& row);

// Applies, in this order, the penalties, the bias, the mask and the bans to x [V], in place.
// `pending` is one more produced token, or -1. Ids outside [0, V) have no effect.
//
// As in vLLM: repetition divides a positive logit and multiplies another one, once for each token
// of the prompt or the output (Keskar et al. 2019, arXiv:1909.05858); frequency subtracts its
// penalty per produced copy, presence once for each produced token.
void adjust_logits(const SampleRow& row, int32_t pending, float* x, int64_t vocab);

}  // namespace quire::ops
