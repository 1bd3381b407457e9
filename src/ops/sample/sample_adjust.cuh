#pragma once
#include "ops/sample/sample_cuda.h"

// Penalties, bias, mask and bans of a row, by its block; as sample_adjust.cpp has them.
namespace quire::ops {

__device__ inline bool has_penalties(const SampleCudaRow& row) {
  return row.repetition_penalty != 1.0f || row.presence_penalty != 0.0f ||
         row.frequency_penalty != 0.0f;
}
__device__ inline bool changes_logits(const SampleCudaRow& row) {
  return row.forced_token < 0 &&
         (has_penalties(row) || row.bias_begin < row.bias_end || row.mask >= 0 ||
          row.banned_begin < row.banned_end || row.after_begin < row.after_end);
}

__device__ inline void penalise(const SampleCudaRow& row, const SampleCudaCount& count, float* x,
                                int64_t vocab) {
  if (count.token < 0 || count.token >= vocab) return;
  float logit = x[count.token];
  if (count.in_prompt != 0 || count.in_output > 0)
    logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  if (count.in_output > 0) {
    logit -= row.frequency_penalty * static_cast<float>(count.in_output);
    logit -= row.presence_penalty;
  }
  x[count.token] = logit;
}

__device__ inline void apply_penalties(const SampleCudaParams& p, const SampleCudaRow& row,
                                       int32_t pending, float* x) {
  bool met = false;
  for (int i = row.history_begin + static_cast<int>(threadIdx.x); i < row.history_end;
       i += static_cast<int>(blockDim.x)) {
    SampleCudaCount count = p.history[i];
    if (count.token == pending) {
      met = true;
      ++count.in_output;
    }
    penalise(row, count, x, p.vocab);
  }
  if (__syncthreads_or(met) == 0 && threadIdx.x == 0) penalise(row, {pending, 1, 0}, x, p.vocab);
  __syncthreads();
}

// A token that is listed several times gets its biases in the list's order, from one thread.
__device__ inline void apply_bias(const SampleCudaParams& p, const SampleCudaRow& row, float* x) {
  for (int i = row.bias_begin + static_cast<int>(threadIdx.x); i < row.bias_end;
       i += static_cast<int>(blockDim.x)) {
    const int32_t token = p.bias[i].token;
    bool is_first = token >= 0 && token < p.vocab;
    for (int j = row.bias_begin; j < i && is_first; ++j) is_first = p.bias[j].token != token;
    for (int j = i; j < row.bias_end && is_first; ++j)
      if (p.bias[j].token == token) x[token] += p.bias[j].value;
  }
  __syncthreads();
}

// The row's logits as sampling sees them: in `x` of the scratch if they change.
__device__ inline const float* adjusted_logits(const SampleCudaParams& p, const SampleCudaRow& row,
                                               const float* logits, float* x) {
  if (!changes_logits(row)) return logits;
  const uint32_t* mask = row.mask >= 0 ? p.masks + row.mask : nullptr;
  const int32_t pending =
      row.pending_row >= 0 && p.previous != nullptr ? p.previous[row.pending_row] : -1;
  for (int64_t i = threadIdx.x; i < p.vocab; i += blockDim.x) x[i] = logits[i];
  __syncthreads();
  if (has_penalties(row)) apply_penalties(p, row, pending, x);
  apply_bias(p, row, x);
  for (int64_t i = threadIdx.x; i < p.vocab && mask != nullptr; i += blockDim.x)
    if ((mask[i / 32] >> (i % 32) & 1u) == 0) x[i] = -INFINITY;
  __syncthreads();
  for (int i = row.banned_begin + static_cast<int>(threadIdx.x); i < row.banned_end;
       i += static_cast<int>(blockDim.x))
    if (p.banned[i] >= 0 && p.banned[i] < p.vocab) x[p.banned[i]] = -INFINITY;
  for (int i = row.after_begin + static_cast<int>(threadIdx.x); i < row.after_end;
       i += static_cast<int>(blockDim.x)) {
    const SampleCudaPair pair = p.banned_after[i];
    if (pair.before == pending && pending >= 0 && pair.token >= 0 && pair.token < p.vocab)
      x[pair.token] = -INFINITY;
  }
  __syncthreads();
  return x;
}

}  // namespace quire::ops
