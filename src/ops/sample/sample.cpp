#include "ops/sample/sample.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "ops/cuda/cuda_device.h"
#include "ops/metal/launch_metal.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"
#include "ops/sample/sample_metal.h"
#include "ops/sample/sample_on_cuda.h"
#include "ops/sample/sample_reference.h"
#include "ops/sample/sample_row.h"

namespace quire::ops {
namespace {

[[noreturn]] void refuse(size_t row, const std::string& what) {
  throw std::invalid_argument("sample: row " + std::to_string(row) + " " + what);
}

// Cheap checks of what would make the kernel read or write out of bounds. Ids in history, bias and
// bans are checked where they are used.
void check_row(size_t r, const SampleRow& row, int64_t vocab, int64_t num_previous) {
  if (row.forced_token >= vocab)
    refuse(r, "forces token " + std::to_string(row.forced_token) + " of " + std::to_string(vocab));
  if (row.pending_row >= num_previous)
    refuse(r, "has its pending token in row " + std::to_string(row.pending_row) + " of " +
                  std::to_string(num_previous));
  if (row.mask && static_cast<int64_t>(row.mask->size()) < (vocab + 31) / 32)
    refuse(r, "has a mask of " + std::to_string(row.mask->size()) + " words for " +
                  std::to_string(vocab) + " tokens");
}

// Returns the width of the top lists.
int check_arguments(const mx::array& logits, const SampleRows& rows,
                    const std::optional<mx::array>& previous) {
  if (!rows) throw std::invalid_argument("sample: rows is null");
  check_shape("sample", "logits", logits, {static_cast<int64_t>(rows->size()), -1});
  check_dtype("sample", "logits", logits, mx::float32);
  if (logits.shape(1) == 0) throw std::invalid_argument("sample: the vocabulary is empty");
  if (previous) {
    check_shape("sample", "previous", *previous, {-1});
    check_dtype("sample", "previous", *previous, mx::int32);
  }
  int width = 1;
  for (size_t r = 0; r < rows->size(); ++r) {
    check_row(r, (*rows)[r], logits.shape(1), previous ? previous->shape(0) : 0);
    width = std::max(width, (*rows)[r].num_top_logprobs);
  }
  return width;
}

struct Outputs {
  int32_t* tokens;
  float* logprobs;
  int32_t* ranks;
  int32_t* top_ids;
  float* top_logprobs;
};

// Samples row r and writes its part of the outputs.
void run_row(int64_t r, const SampleRow& row, const KernelArray& logits, const int32_t* previous,
             bool reference, int width, const Outputs& out) {
  const int64_t vocab = logits.shape(1);
  SampledRow sampled{.top_ids = {out.top_ids + r * width, static_cast<size_t>(width)},
                     .top_logprobs = {out.top_logprobs + r * width, static_cast<size_t>(width)}};
  std::fill(sampled.top_ids.begin(), sampled.top_ids.end(), -1);
  std::fill(sampled.top_logprobs.begin(), sampled.top_logprobs.end(), 0.0f);
  const int32_t pending = row.pending_row >= 0 ? previous[row.pending_row] : -1;
  const float* x = logits.data<float>() + r * vocab;
  if (reference) {
    sample_row_reference(row, pending, x, vocab, sampled);
  } else {
    sample_row(row, pending, x, vocab, sampled);
  }
  out.tokens[r] = sampled.token;
  out.logprobs[r] = sampled.logprob;
  out.ranks[r] = sampled.rank;
}

SampleOutput sample_on_metal(const Context& context, const mx::array& logits,
                             const SampleRows& rows, const std::optional<mx::array>& previous,
                             int width) {
  const int count = logits.shape(0), vocab = logits.shape(1);
  const SampleMetal launch = sample_metal(*rows, vocab, width, previous.has_value());
  MetalDevice& metal = *context.device->metal();
  auto encode = [params = launch.params, call = launch.call, scratch = int64_t{count} * vocab](
                    MetalEncoder& encoder, const auto& in, auto& out) {
    const mx::array changed = encoder.scratch(scratch);
    std::vector<MetalArgument> arguments = {metal_numbers(kSampleParams, params),
                                            metal_write(kSampleScratch, changed)};
    const int inputs[] = {kSampleLogits, kSampleRows,        kSampleHistory, kSampleBias,
                          kSampleBanned, kSampleBannedAfter, kSampleMasks,   kSamplePrevious};
    for (size_t i = 0; i < std::size(inputs); ++i)
      arguments.push_back(metal_read(inputs[i], in[i]));
    const int outputs[] = {kSampleTokens, kSampleLogprobs, kSampleRanks, kSampleTopIds,
                           kSampleTopLogprobs};
    for (size_t i = 0; i < std::size(outputs); ++i)
      arguments.push_back(metal_write(outputs[i], out[i]));
    encoder.dispatch(call, arguments);
  };
  const auto out =
      launch_metal(context, {.op = "sample", .encode = encode},
                   {{count}, {count}, {count}, {count, width}, {count, width}},
                   {mx::int32, mx::float32, mx::int32, mx::int32, mx::float32},
                   {logits, metal.make_values(launch.rows), metal.make_values(launch.history),
                    metal.make_values(launch.bias), metal.make_values(launch.banned),
                    metal.make_values(launch.banned_after), metal.make_values(launch.masks),
                    previous ? *previous : metal.make_values(std::vector<int32_t>{})});
  return SampleOutput::from(out);
}

}  // namespace

SampleOutput sample(const Context& context, const mx::array& logits, const SampleRows& rows,
                    const std::optional<mx::array>& previous) {
  const int width = check_arguments(logits, rows, previous);
  const int count = logits.shape(0);
  const bool reference = context.use_reference;
  if (context.device->metal() && !reference)
    return sample_on_metal(context, logits, rows, previous, width);
  auto kernel = [=, pool = context.pool, cuda = context.device->cuda()](const auto& in, auto& out) {
    const Outputs to{out[0].template data<int32_t>(), out[1].template data<float>(),
                     out[2].template data<int32_t>(), out[3].template data<int32_t>(),
                     out[4].template data<float>()};
    const int32_t* previous_tokens = in.size() > 1 ? in[1].template data<int32_t>() : nullptr;
    if constexpr (kHasCuda)
      if (cuda)
        return sample_on_cuda(*cuda, *rows,
                              {.rows = count,
                               .vocab = in[0].shape(1),
                               .width = width,
                               .logits = in[0].template data<float>(),
                               .previous = previous_tokens,
                               .tokens = to.tokens,
                               .logprobs = to.logprobs,
                               .ranks = to.ranks,
                               .top_ids = to.top_ids,
                               .top_logprobs = to.top_logprobs});
    pool->parallel_for(count, [&](int64_t r) {
      run_row(r, (*rows)[r], in[0], previous_tokens, reference, width, to);
    });
  };
  std::vector<mx::array> inputs = {logits};
  if (previous) inputs.push_back(*previous);
  const char* name = reference ? "reference" : context.device->kernel_name();
  auto outputs =
      launch_kernel(context, {.op = "sample", .kernel = name, .run = kernel},
                    {{count}, {count}, {count}, {count, width}, {count, width}},
                    {mx::int32, mx::float32, mx::int32, mx::int32, mx::float32}, std::move(inputs));
  return {outputs[0], outputs[1], outputs[2], outputs[3], outputs[4]};
}

}  // namespace quire::ops
