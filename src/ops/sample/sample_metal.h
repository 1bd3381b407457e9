#pragma once
#include "ops/metal/shared_types.h"
#ifndef __METAL_VERSION__
#include <vector>

#include "ops/metal/metal_call.h"
#include "ops/sample/sample_params.h"
#endif

namespace quire::ops {

// SampleRow for the GPU: the lists of all rows lie one after another in shared arrays, of which a
// row has [begin, end).
struct SampleMetalRow {
  int64_t mask;                   // first word of the row's mask; -1: none
  uint32_t seed[2], position[2];  // low words first
  float temperature, top_p, min_p;
  float repetition_penalty, presence_penalty, frequency_penalty;
  int32_t top_k, pending_row;
  int32_t history_begin, history_end, bias_begin, bias_end;
  int32_t banned_begin, banned_end, after_begin, after_end;
  int32_t forced_token, num_top_logprobs;
  int32_t changes_logits;  // penalties, bias, mask or bans
};
struct SampleMetalCount {
  int32_t token, in_output, in_prompt;
};
struct SampleMetalBias {
  int32_t token;
  float value;
};
// `token` is banned where the pending one is `before`.
struct SampleMetalPair {
  int32_t before, token;
};

struct SampleMetalParams {
  int32_t vocab, width, has_previous;  // width: of the top lists
};

// Where the kernel finds its arrays; those from the scratch on are written. Lists may be empty, but
// must be there.
enum SampleMetalBuffer {
  kSampleParams,
  kSampleRows,      // [R] SampleMetalRow
  kSampleLogits,    // [R, V] float32
  kSamplePrevious,  // int32, the last step's tokens
  kSampleHistory,
  kSampleBias,
  kSampleBanned,  // int32
  kSampleBannedAfter,
  kSampleMasks,    // uint32
  kSampleScratch,  // [R, V] float32: adjusted logits; only of rows whose logits change
  kSampleTokens,   // [R] int32
  kSampleLogprobs,
  kSampleRanks,
  kSampleTopIds,  // [R, width]
  kSampleTopLogprobs,
};

#ifndef __METAL_VERSION__
// The most tokens of a vocabulary: sums of masses stay below 2^60.
inline constexpr int64_t kMaxSampleMetalVocab = int64_t{1} << 20;

struct SampleMetal {
  SampleMetalParams params;
  std::vector<SampleMetalRow> rows;
  std::vector<SampleMetalCount> history;
  std::vector<SampleMetalBias> bias;
  std::vector<int32_t> banned;
  std::vector<SampleMetalPair> banned_after;
  std::vector<uint32_t> masks;
  MetalCall call;
};
// One threadgroup a row. Masses are integers, e^z 2^40 rounded: their sums are exact in whatever
// order, and a token below 2^-41 of the best is never sampled. width: of the top lists. Throws
// std::invalid_argument for a larger vocabulary.
SampleMetal sample_metal(const std::vector<SampleRow>& rows, int64_t vocab, int64_t width,
                         bool has_previous);
#endif

}  // namespace quire::ops
