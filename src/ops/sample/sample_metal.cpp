#include "ops/sample/sample_metal.h"

#include <stdexcept>

#include "ops/sample/sample_adjust.h"

namespace quire::ops {
namespace {

int32_t size_of(const auto& list) { return static_cast<int32_t>(list.size()); }

SampleMetalRow packed(const SampleRow& row, SampleMetal& to) {
  SampleMetalRow out = {};
  out.temperature = row.temperature;
  out.top_p = row.top_p;
  out.min_p = row.min_p;
  out.top_k = row.top_k;
  out.repetition_penalty = row.repetition_penalty;
  out.presence_penalty = row.presence_penalty;
  out.frequency_penalty = row.frequency_penalty;
  const auto position = static_cast<uint64_t>(row.position);
  for (int i = 0; i < 2; ++i) {
    out.seed[i] = static_cast<uint32_t>(row.seed >> 32 * i);
    out.position[i] = static_cast<uint32_t>(position >> 32 * i);
  }
  out.pending_row = row.pending_row;
  out.forced_token = row.forced_token;
  out.num_top_logprobs = row.num_top_logprobs;
  out.changes_logits = changes_logits(row) ? 1 : 0;
  out.history_begin = size_of(to.history);
  for (const TokenCount& c : row.history)
    to.history.push_back({c.token, c.in_output, c.in_prompt ? 1 : 0});
  out.history_end = size_of(to.history);
  out.bias_begin = size_of(to.bias);
  for (const auto& [token, value] : row.logit_bias) to.bias.push_back({token, value});
  out.bias_end = size_of(to.bias);
  out.banned_begin = size_of(to.banned);
  to.banned.insert(to.banned.end(), row.banned.begin(), row.banned.end());
  out.banned_end = size_of(to.banned);
  out.after_begin = size_of(to.banned_after);
  for (const auto& [before, token] : row.banned_after) to.banned_after.push_back({before, token});
  out.after_end = size_of(to.banned_after);
  out.mask = -1;
  if (row.mask) {
    out.mask = static_cast<int64_t>(to.masks.size());
    to.masks.insert(to.masks.end(), row.mask->begin(), row.mask->end());
  }
  return out;
}

}  // namespace

SampleMetal sample_metal(const std::vector<SampleRow>& rows, int64_t vocab, int64_t width,
                         bool has_previous) {
  if (vocab < 1 || vocab > kMaxSampleMetalVocab)
    throw std::invalid_argument("sample: no Metal kernel for a vocabulary of " +
                                std::to_string(vocab) + " tokens");
  SampleMetal sample = {};
  sample.params = {static_cast<int32_t>(vocab), static_cast<int32_t>(width), has_previous ? 1 : 0};
  for (const SampleRow& row : rows) sample.rows.push_back(packed(row, sample));
  sample.call.kernel = "sample";
  sample.call.groups = {static_cast<uint32_t>(rows.size()), 1, 1};
  sample.call.threads = {1024, 1, 1};
  return sample;
}

}  // namespace quire::ops
