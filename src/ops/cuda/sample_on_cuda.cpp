#include "ops/sample/sample_on_cuda.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "ops/cuda/cuda_recording.h"
#include "ops/runtime/recorded_step.h"
#include "ops/sample/sample_lists.h"

namespace quire::ops {
namespace {

// The rows' lists, one after another. Kept by a recorded step, whose next one needs as much room.
struct Lists {
  std::vector<SampleCudaRow> rows;
  std::vector<SampleCudaCount> history;
  std::vector<SampleCudaBias> bias;
  std::vector<int32_t> banned;
  std::vector<SampleCudaPair> banned_after;
  std::vector<uint32_t> masks;

  explicit Lists(const std::vector<SampleRow>& sample_rows) { assign(sample_rows); }
  Lists() = default;
  void assign(const std::vector<SampleRow>& sample_rows);
};

void Lists::assign(const std::vector<SampleRow>& sample_rows) {
  rows.clear();
  history.clear();
  bias.clear();
  banned.clear();
  banned_after.clear();
  masks.clear();
  for (const SampleRow& row : sample_rows) {
    SampleCudaRow& to = rows.emplace_back();
    append_sample_row(row, to, *this);
    to.seed = row.seed;
    to.position = row.position;
  }
}

// Counts from where the lists begin to where they lie among others.
void shift(SampleCudaRow& row, int64_t history, int64_t bias, int64_t banned, int64_t after,
           int64_t masks) {
  const auto by = [](int64_t distance, int32_t& begin, int32_t& end) {
    begin += static_cast<int32_t>(distance);
    end += static_cast<int32_t>(distance);
  };
  by(history, row.history_begin, row.history_end);
  by(bias, row.bias_begin, row.bias_end);
  by(banned, row.banned_begin, row.banned_end);
  by(after, row.after_begin, row.after_end);
  if (row.mask >= 0) row.mask += masks;
}

// With the rows of each step that a recorded one runs for.
void sample_again(CudaRecording& recording, CudaDevice& cuda, SampleCudaParams params) {
  const auto* rows = recording.add<SampleCudaRow>(static_cast<size_t>(params.rows));
  recording.fill([rows, lists = std::make_shared<Lists>()](const StepValues& values,
                                                           StepWriter& writer) {
    lists->assign(*values.samples);
    const int64_t history = writer.append(lists->history), bias = writer.append(lists->bias),
                  banned = writer.append(lists->banned), after = writer.append(lists->banned_after),
                  masks = writer.append(lists->masks);
    for (SampleCudaRow& row : lists->rows) shift(row, history, bias, banned, after, masks);
    writer.copy(rows, lists->rows);
  });
  const std::byte* tail = recording.tail();
  params.row = rows;
  params.history = reinterpret_cast<const SampleCudaCount*>(tail);
  params.bias = reinterpret_cast<const SampleCudaBias*>(tail);
  params.banned = reinterpret_cast<const int32_t*>(tail);
  params.banned_after = reinterpret_cast<const SampleCudaPair*>(tail);
  params.masks = reinterpret_cast<const uint32_t*>(tail);
  sample_cuda(cuda.stream(), params);
}

}  // namespace

void sample_on_cuda(CudaDevice& cuda, const std::vector<SampleRow>& rows, SampleCudaParams params) {
  if (params.width > kMaxSampleCudaTop)
    throw std::invalid_argument("sample: " + std::to_string(params.width) +
                                " logprobs of a row, but the GPU gives " +
                                std::to_string(kMaxSampleCudaTop));
  const CudaScratch scratch(cuda, static_cast<size_t>(params.rows * params.vocab) * sizeof(float));
  params.scratch = static_cast<float*>(scratch.data());
  if (CudaRecording* recording = cuda.recording()) return sample_again(*recording, cuda, params);
  const Lists lists(rows);
  const CudaValues row_values(cuda, lists.rows), history(cuda, lists.history),
      bias(cuda, lists.bias), banned(cuda, lists.banned), banned_after(cuda, lists.banned_after),
      masks(cuda, lists.masks);
  params.row = row_values.as<const SampleCudaRow>();
  params.history = history.as<const SampleCudaCount>();
  params.bias = bias.as<const SampleCudaBias>();
  params.banned = banned.as<const int32_t>();
  params.banned_after = banned_after.as<const SampleCudaPair>();
  params.masks = masks.as<const uint32_t>();
  sample_cuda(cuda.stream(), params);
}

}  // namespace quire::ops
