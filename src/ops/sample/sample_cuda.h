#pragma once
#include <cstdint>

#include "ops/cuda/cuda_stream.h"

namespace quire::ops {

// SampleRow for the device: the lists of all rows lie one after another in shared arrays, of which
// a row has [begin, end).
struct SampleCudaRow {
  float temperature = 0, top_p = 1, min_p = 0;
  int32_t top_k = 0;
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int32_t pending_row = -1;
  uint64_t seed = 0;
  int64_t position = 0;
  int32_t history_begin = 0, history_end = 0;
  int32_t bias_begin = 0, bias_end = 0;
  int32_t banned_begin = 0, banned_end = 0;
  int32_t after_begin = 0, after_end = 0;
  int64_t mask = -1;  // first word of the row's mask; -1: none
  int32_t forced_token = -1;
  int32_t num_top_logprobs = -1;
};

// TokenCount for the device.
struct SampleCudaCount {
  int32_t token = 0, in_output = 0, in_prompt = 0;
};

// An entry of banned_after for the device.
struct SampleCudaPair {
  int32_t before = 0, token = 0;
};

// An entry of logit_bias for the device.
struct SampleCudaBias {
  int32_t token = 0;
  float value = 0;
};

// The most logprobs of a row, and tokens of a vocabulary.
inline constexpr int64_t kMaxSampleCudaTop = 1024, kMaxSampleCudaVocab = int64_t{1} << 20;

// All pointers are of the device.
struct SampleCudaParams {
  int64_t rows = 0, vocab = 0;
  int64_t width = 1;                   // of the top lists
  const float* logits = nullptr;       // [R, V]
  const int32_t* previous = nullptr;   // or null
  const SampleCudaRow* row = nullptr;  // [R]
  const SampleCudaCount* history = nullptr;
  const SampleCudaBias* bias = nullptr;
  const int32_t* banned = nullptr;
  const SampleCudaPair* banned_after = nullptr;
  const uint32_t* masks = nullptr;
  float* scratch = nullptr;  // [R, V]: adjusted logits; only of rows whose logits change
  int32_t* tokens = nullptr;
  float* logprobs = nullptr;
  int32_t* ranks = nullptr;
  int32_t* top_ids = nullptr;  // [R, width]
  float* top_logprobs = nullptr;
};

// A block a row, or a few that look for its best token together. Masses are integers, rounded
// e^z 2^40: their sums are exact in whatever order, and a token below 2^-41 of the best is never
// sampled.
void sample_cuda(CudaStream stream, const SampleCudaParams& params);

}  // namespace quire::ops
