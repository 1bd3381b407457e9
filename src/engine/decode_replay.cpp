#include "engine/decode_replay.h"

#include <algorithm>

#include "ops/gather_rows/gather_rows.h"

namespace quire::engine {
namespace {

// The most logprobs of a row, OpenAI's limit; rows that want more are sampled apart.
constexpr int32_t kMostLogprobs = 20;
// Larger steps are launched kernel by kernel: their kernels take longer than the host, and a
// recording's block has room for the values of some thousand sequences.
constexpr int64_t kMostSequences = 1024;

}  // namespace

std::vector<int64_t> DecodeReplay::buckets(int64_t most) {
  std::vector<int64_t> sizes;
  const auto step = [](int64_t size) -> int64_t {
    if (size < 8) return size;
    return size < 64 ? 8 : (size < 256 ? 16 : 64);
  };
  for (int64_t size = 1; size < most; size += step(size)) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

DecodeReplay::DecodeReplay(const models::Model& model, KvPool& pool,
                           const SchedulerOptions& options)
    : model_(model),
      pool_(pool),
      options_(options),
      buckets_(buckets(
          std::min({options.max_num_seqs, options.max_num_batched_tokens, kMostSequences}))),
      previous_(
          model.context().device->make_pool({static_cast<int>(options.max_num_seqs)}, mx::int32)) {}

int32_t DecodeReplay::short_context(int64_t sequences) {
  // So many tokens of all of them keep a GPU's multiprocessors at work, but no longer.
  constexpr int64_t kAllTokens = 2048, kMost = 4;
  return sequences <= kMost ? static_cast<int32_t>(kAllTokens / sequences) : 0;
}

int64_t DecodeReplay::bucket_of(const StepPlan& plan) const {
  if (!plan.restores.empty() || !plan.saves.empty()) return 0;
  for (const StepItem& item : plan.items)
    if (item.num_tokens != 1 || !item.samples || item.sequence->facts.pools ||
        item.sequence->facts.adapter >= 0)
      return 0;
  const auto size =
      std::lower_bound(buckets_.begin(), buckets_.end(), static_cast<int64_t>(plan.items.size()));
  return size == buckets_.end() ? 0 : *size;
}

std::optional<ops::LaunchedStep> DecodeReplay::launch(const Batch& batch, ops::SampleRows samples,
                                                      const std::optional<mx::array>& previous) {
  const std::vector<int32_t>& lengths = batch.layout->seq_lens;
  Key key = {batch.layout->num_sequences, samples != nullptr};
  const int32_t limit = short_context(key.sequences);
  if (limit > 0 && *std::ranges::max_element(lengths) <= limit) key.longest = limit;
  return recorded(key).launch({.layout = batch.layout,
                               .ids = batch.ids,
                               .from = batch.from,
                               .samples = std::move(samples),
                               .most_top_logprobs = batch.most_logprobs,
                               .has_new_rows = batch.reads_prompts},
                              previous);
}

void DecodeReplay::record_all() {
  for (auto size = buckets_.rbegin(); size != buckets_.rend(); ++size)
    for (const bool samples : {false, true}) {
      recorded({*size, samples});
      if (const int32_t limit = short_context(*size)) recorded({*size, samples, limit});
    }
}

ops::RecordedStep& DecodeReplay::recorded(Key key) {
  auto& step = recorded_[key];
  if (!step) step = record(key);
  return *step;
}

std::unique_ptr<ops::RecordedStep> DecodeReplay::record(Key key) {
  const auto [sequences, has_sampler, longest] = key;
  const auto count = static_cast<size_t>(sequences);
  const ops::Context& context = model_.context();
  ops::StepValues values{.layout = padding_layout(sequences, 1, sequences, options_),
                         .ids = std::make_shared<std::vector<int32_t>>(count),
                         .from = std::make_shared<std::vector<int32_t>>(count, -1),
                         .longest = longest};
  if (has_sampler) {
    values.samples = std::make_shared<std::vector<ops::SampleRow>>(
        count, ops::SampleRow{.forced_token = 0, .num_top_logprobs = kMostLogprobs});
    values.most_top_logprobs = kMostLogprobs;
  }
  const mx::array tokens = ops::resolve_tokens(context, values.ids, values.from, previous_);
  const mx::array logits = model_.forward(tokens, values.layout, pool_.caches()).logits;
  std::vector<mx::array> outputs = {logits};
  if (has_sampler) outputs = ops::sample(context, logits, values.samples, previous_).arrays();
  auto step = ops::record_kernels(context, values, previous_, outputs, pool_.arrays(),
                                  has_sampler ? outputs.size() : 0);
  pool_.reset_handles();
  return step;
}

}  // namespace quire::engine
