#include "ops/runtime/recorded_step.h"

#include <algorithm>

#include "ops/gather_rows/gather_rows.h"

namespace quire::ops {
namespace {

bool same_sizes(const BatchLayout& a, const BatchLayout& b) {
  return a.num_tokens == b.num_tokens && a.num_sequences == b.num_sequences &&
         a.block_size == b.block_size && a.state_slots.size() == b.state_slots.size() &&
         a.rows.size() == b.rows.size() && takes_all_rows(a) == takes_all_rows(b);
}

int32_t most_top_logprobs(const StepValues& values) {
  if (values.most_top_logprobs) return *values.most_top_logprobs;
  int32_t most = 0;
  for (const SampleRow& row : *values.samples) most = std::max(most, row.num_top_logprobs);
  return most;
}

}  // namespace

bool fits_recording(const StepRecording& recorded, const StepValues& values,
                    const std::optional<mx::array>& previous) {
  const StepValues& then = recorded.values;
  const int32_t longest = then.longest;
  const auto is_too_long = [longest](int32_t length) { return length > longest; };
  if (longest > 0 && std::ranges::any_of(values.layout->seq_lens, is_too_long)) return false;
  if (!same_sizes(*then.layout, *values.layout) || then.ids->size() != values.ids->size() ||
      then.from->size() != values.from->size())
    return false;
  if (previous && previous->size() > recorded.previous.size()) return false;
  if (!then.samples) return true;
  return values.samples && values.samples->size() == then.samples->size() &&
         most_top_logprobs(values) <= most_top_logprobs(then);
}

}  // namespace quire::ops
