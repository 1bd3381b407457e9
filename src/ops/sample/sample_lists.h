#pragma once
#include "ops/sample/sample_params.h"

namespace quire::ops {

// Puts `row` into `to`, a row of a GPU's kernel, and its lists behind those of the rows before it.
// What a kernel keeps in its own way, seed and position, stays as it is.
template <class Row, class Lists>
void append_sample_row(const SampleRow& row, Row& to, Lists& lists) {
  const auto length = [](const auto& list) { return static_cast<int32_t>(list.size()); };
  to.temperature = row.temperature;
  to.top_p = row.top_p;
  to.min_p = row.min_p;
  to.top_k = row.top_k;
  to.repetition_penalty = row.repetition_penalty;
  to.presence_penalty = row.presence_penalty;
  to.frequency_penalty = row.frequency_penalty;
  to.pending_row = row.pending_row;
  to.forced_token = row.forced_token;
  to.num_top_logprobs = row.num_top_logprobs;
  to.history_begin = length(lists.history);
  for (const TokenCount& c : row.history)
    lists.history.push_back({c.token, c.in_output, c.in_prompt ? 1 : 0});
  to.history_end = length(lists.history);
  to.bias_begin = length(lists.bias);
  for (const auto& [token, value] : row.logit_bias) lists.bias.push_back({token, value});
  to.bias_end = length(lists.bias);
  to.banned_begin = length(lists.banned);
  lists.banned.insert(lists.banned.end(), row.banned.begin(), row.banned.end());
  to.banned_end = length(lists.banned);
  to.after_begin = length(lists.banned_after);
  for (const auto& [before, token] : row.banned_after)
    lists.banned_after.push_back({before, token});
  to.after_end = length(lists.banned_after);
  to.mask = row.mask ? static_cast<int64_t>(lists.masks.size()) : -1;
  if (row.mask) lists.masks.insert(lists.masks.end(), row.mask->begin(), row.mask->end());
}

}  // namespace quire::ops
