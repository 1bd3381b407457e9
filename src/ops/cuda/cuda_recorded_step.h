#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "ops/cuda/cuda_device.h"
#include "ops/cuda/cuda_recording.h"
#include "ops/cuda/step_block_cuda.h"
#include "ops/runtime/recorded_step.h"

struct CUgraphExec_st;

namespace quire::ops {

// What all recorded steps of a device share, since they run one after another: their values, their
// activations and their outputs.
class CudaStepMemory {
 public:
  // The values of 1,024 sequences with latent attention of 128 heads take 0.8 MiB.
  static constexpr size_t kTail = size_t{4} << 20, kCapacity = size_t{28} << 20;

  explicit CudaStepMemory(CudaDevice& device);
  ~CudaStepMemory();
  CudaStepMemory(const CudaStepMemory&) = delete;
  CudaStepMemory& operator=(const CudaStepMemory&) = delete;

  StepBlockRange range() const { return {values_.get(), kTail, kCapacity}; }
  uint64_t* began() const { return reinterpret_cast<uint64_t*>(values_.get() + kCapacity); }
  // Pinned memory for the values of the next step, as large as the block. Waits until the step that
  // had it last has read it.
  std::byte* next_host();
  void host_is_read();  // the last one: once what was enqueued so far has run

  using Memory = std::shared_ptr<std::byte[]>;
  // Memory of at least this size; a piece that grows is a new one, and who has the old one keeps
  // it.
  enum Piece {
    kActivations,
    kRead,
    kKept
  };  // activations; outputs that the host reads, and does not
  const Memory& at_least(Piece piece, size_t bytes);
  size_t size(Piece piece) const { return sizes_[piece]; }

  // Fetches a step's tokens beside what runs, if a recorded step gives them: see
  // CudaDevice::break_step_order().
  void fetch_too_early(BeginStepCudaParams& step);

 private:
  static constexpr int kHosts = 3;

  CudaDevice& device_;  // which owns this
  Memory values_;
  std::byte* hosts_[kHosts] = {};
  CUevent_st* read_[kHosts] = {};
  int host_ = 0;
  CudaStream beside_ = nullptr;  // of fetch_too_early()
  Memory pieces_[3];
  size_t sizes_[3] = {};
};

// A CUDA graph of a step's kernels.
class CudaRecordedStep final : public RecordedStep {
 public:
  CudaRecordedStep(std::shared_ptr<CudaDevice> device, StepRecording recording);
  ~CudaRecordedStep() override;

  std::optional<LaunchedStep> launch(const StepValues& values,
                                     const std::optional<mx::array>& previous) override;

 private:
  void place_outputs();
  void run_once();
  void capture();
  std::unique_ptr<HostCopies> send_results();

  std::shared_ptr<CudaDevice> device_;
  StepRecording recording_;
  std::vector<mx::array> outputs_;
  std::vector<void*> output_memory_;
  size_t read_bytes_ = 0;  // of the outputs that the host reads, which lie side by side
  std::vector<size_t> read_at_;
  CudaStepMemory::Memory activations_, read_, kept_;
  std::vector<CudaRecording::Fill> fills_;
  size_t fixed_bytes_ = 0;
  CUgraphExec_st* graph_ = nullptr;
};

}  // namespace quire::ops
