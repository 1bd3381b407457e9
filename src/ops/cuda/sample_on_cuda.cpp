#include "ops/sample/sample_on_cuda.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace quire::ops {
namespace {

// The rows' lists, one after another.
struct Lists {
  std::vector<SampleCudaRow> rows;
  std::vector<SampleCudaCount> history;
  std::vector<int32_t> bias_tokens;
  std::vector<float> bias_values;
  std::vector<int32_t> banned;
  std::vector<SampleCudaPair> banned_after;
  std::vector<uint32_t> masks;
};

template <class T>
int32_t length(const std::vector<T>& list) {
  return static_cast<int32_t>(list.size());
}

SampleCudaRow scalars(const SampleRow& row) {
  return {.temperature = row.temperature,
          .top_p = row.top_p,
          .min_p = row.min_p,
          .top_k = row.top_k,
          .repetition_penalty = row.repetition_penalty,
          .presence_penalty = row.presence_penalty,
          .frequency_penalty = row.frequency_penalty,
          .pending_row = row.pending_row,
          .seed = row.seed,
          .position = row.position,
          .forced_token = row.forced_token,
          .num_top_logprobs = row.num_top_logprobs};
}

void append(Lists& lists, const SampleRow& row) {
  SampleCudaRow& to = lists.rows.emplace_back(scalars(row));
  to.history_begin = length(lists.history);
  for (const TokenCount& count : row.history)
    lists.history.push_back({count.token, count.in_output, count.in_prompt ? 1 : 0});
  to.history_end = length(lists.history);
  to.bias_begin = length(lists.bias_tokens);
  for (const auto& [token, value] : row.logit_bias) {
    lists.bias_tokens.push_back(token);
    lists.bias_values.push_back(value);
  }
  to.bias_end = length(lists.bias_tokens);
  to.banned_begin = length(lists.banned);
  lists.banned.insert(lists.banned.end(), row.banned.begin(), row.banned.end());
  to.banned_end = length(lists.banned);
  to.after_begin = length(lists.banned_after);
  for (const auto& [before, token] : row.banned_after)
    lists.banned_after.push_back({before, token});
  to.after_end = length(lists.banned_after);
  if (!row.mask) return;
  to.mask = static_cast<int64_t>(lists.masks.size());
  lists.masks.insert(lists.masks.end(), row.mask->begin(), row.mask->end());
}

}  // namespace

void sample_on_cuda(CudaDevice& cuda, const std::vector<SampleRow>& rows, SampleCudaParams params) {
  if (params.width > kMaxSampleCudaTop)
    throw std::invalid_argument("sample: " + std::to_string(params.width) +
                                " logprobs of a row, but the GPU gives " +
                                std::to_string(kMaxSampleCudaTop));
  Lists lists;
  for (const SampleRow& row : rows) append(lists, row);
  const CudaValues row_values(cuda, lists.rows), history(cuda, lists.history),
      bias_tokens(cuda, lists.bias_tokens), bias_values(cuda, lists.bias_values),
      banned(cuda, lists.banned), banned_after(cuda, lists.banned_after), masks(cuda, lists.masks);
  const CudaScratch scratch(cuda, static_cast<size_t>(params.rows * params.vocab) * sizeof(float));
  params.row = row_values.as<const SampleCudaRow>();
  params.history = history.as<const SampleCudaCount>();
  params.bias_tokens = bias_tokens.as<const int32_t>();
  params.bias_values = bias_values.as<const float>();
  params.banned = banned.as<const int32_t>();
  params.banned_after = banned_after.as<const SampleCudaPair>();
  params.masks = masks.as<const uint32_t>();
  params.scratch = static_cast<float*>(scratch.data());
  sample_cuda(cuda.stream(), params);
}

}  // namespace quire::ops
