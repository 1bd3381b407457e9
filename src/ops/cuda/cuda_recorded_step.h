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

class CudaResults;

// A recorded step that was launched: the piece of pinned memory with its values and results, and
// its number among the steps that had this piece, from 1 on.
struct StepInPiece {
  int piece = 0;
  uint64_t number = 0;
};

// What all recorded steps of a device share, since they run one after another: their values, their
// activations and their outputs.
class CudaStepMemory {
 public:
  // The values of 1,024 sequences with latent attention of 128 heads take 0.8 MiB, their results
  // with 20 logprobs each 0.2.
  static constexpr size_t kTail = size_t{4} << 20, kCapacity = size_t{28} << 20;
  static constexpr size_t kResults = size_t{1} << 20;
  static constexpr int kHosts = StepHostMemory::kPieces;

  explicit CudaStepMemory(CudaDevice& device);
  ~CudaStepMemory();
  CudaStepMemory(const CudaStepMemory&) = delete;
  CudaStepMemory& operator=(const CudaStepMemory&) = delete;

  StepBlockRange range() const { return {values_.get(), kTail, kCapacity}; }
  uint64_t* began() const { return reinterpret_cast<uint64_t*>(values_.get() + kCapacity); }
  // Pinned memory for the values of a step, as large as the block, and behind them for its results.
  std::byte* host(int index) const { return hosts_[index].memory; }
  std::byte* results(int index) const { return host(index) + kCapacity; }
  // The next step's, of this recording. Waits until the step that had this memory last has ended.
  StepHostMemory next_host(uint64_t recording);
  // To be called when the step with the values of next_host() was launched.
  StepInPiece launched();
  // Or, if it could not be: what was written is nobody's.
  void spoil() { hosts_[next_].recording = 0; }
  bool has_ended(const StepInPiece& step) const;
  void wait_for(const StepInPiece& step);
  // A number for a recording, for next_host().
  uint64_t add_recording() { return ++num_recordings_; }

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
  struct Host {
    std::byte* memory = nullptr;
    CUevent_st* event = nullptr;  // behind the last step that had it
    // So many steps had it, and of so many the end is known: nobody has to ask the driver.
    uint64_t launched = 0, ended = 0;
    uint64_t recording = 0;  // whose values it has
  };

  CudaDevice& device_;  // which owns this
  Memory values_;
  Host hosts_[kHosts];
  int next_ = 0;
  uint64_t num_recordings_ = 0;
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
  void place_results();
  void run_once();
  void capture();
  const StepTimes* send_results(std::byte* to);
  std::shared_ptr<CudaResults> results_of(int piece);

  std::shared_ptr<CudaDevice> device_;
  StepRecording recording_;
  LaunchedStep::SharedArrays outputs_;
  std::vector<void*> output_memory_;
  size_t read_bytes_ = 0;  // of the outputs that the host reads, which lie side by side
  std::vector<size_t> read_at_;
  std::shared_ptr<CudaResults> results_[CudaStepMemory::kHosts];  // of each piece's last step
  mx::array done_ = mx::array(uint8_t{1});
  CudaStepMemory::Memory activations_, read_, kept_;
  std::vector<CudaRecording::Fill> fills_;
  size_t fixed_bytes_ = 0;
  uint64_t number_;  // of CudaStepMemory::add_recording()
  CUgraphExec_st* graph_ = nullptr;
};

}  // namespace quire::ops
