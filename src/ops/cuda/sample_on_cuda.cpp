#include "ops/sample/sample_on_cuda.h"

#include <array>
#include <stdexcept>
#include <string>

#include "ops/cuda/cuda_recording.h"
#include "ops/cuda/kept_sample_rows.h"
#include "ops/runtime/recorded_step.h"

namespace quire::ops {
namespace {

// With the rows of each step that a recorded one runs for.
void sample_again(CudaRecording& recording, CudaDevice& cuda, SampleCudaParams params) {
  auto* rows = recording.add<SampleCudaRow>(static_cast<size_t>(params.rows));
  recording.fill([rows, lists = std::make_shared<SampleCudaLists>(),
                  kept = std::make_shared<std::array<KeptSampleRows, StepHostMemory::kPieces>>()](
                     const StepValues& values, StepWriter& writer) {
    kept->at(static_cast<size_t>(writer.piece()))
        .write(*values.samples, writer.at(rows), *lists, writer);
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
  SampleCudaLists lists;
  std::vector<SampleCudaRow> cuda_rows;
  for (const SampleRow& row : rows) cuda_rows.push_back(lists.append(row));
  const CudaValues row_values(cuda, cuda_rows), history(cuda, lists.history),
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
