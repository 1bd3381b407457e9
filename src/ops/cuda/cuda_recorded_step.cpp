#include "ops/cuda/cuda_recorded_step.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "ops/cuda/cuda_error.h"
#include "ops/cuda/step_block_cuda.h"
#include "ops/runtime/array_memory.h"

namespace quire::ops {
namespace {

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// The results of a step that writes them into pinned memory by itself.
class CudaResults final : public HostCopies {
 public:
  CudaResults(std::shared_ptr<CudaDevice> device, std::shared_ptr<void> memory,
              std::vector<mx::array> arrays)
      : device_(std::move(device)), memory_(std::move(memory)), arrays_(std::move(arrays)) {
    number_ = device_->next_step();
    ended_ = device_->record_event();
  }
  ~CudaResults() override {
    if (memory_ && !waited_) cudaEventSynchronize(ended_.get());  // it is written until then
  }
  bool are_there() const override { return cudaEventQuery(ended_.get()) != cudaErrorNotReady; }
  std::vector<mx::array> wait() override {
    if (!std::exchange(waited_, true)) {
      device_->wait_for(ended_.get());
      if (!memory_) return arrays_;
      const auto* times = static_cast<const StepTimes*>(memory_.get());
      device_->note_step(number_, times->began, times->ended);
    }
    return arrays_;
  }

 private:
  std::shared_ptr<CudaDevice> device_;
  std::shared_ptr<void> memory_;  // StepTimes, then the results; null: the host reads none
  std::vector<mx::array> arrays_;
  std::shared_ptr<CUevent_st> ended_;
  int64_t number_ = 0;
  bool waited_ = false;
};

constexpr size_t kTimesBytes = 256;
static_assert(sizeof(StepTimes) <= kTimesBytes);

// Ends a capture whatever happens.
struct Capture {
  explicit Capture(CudaStream s) : stream(s) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "recording a step");
  }
  ~Capture() {
    if (open) cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
  }
  cudaGraph_t end() {
    open = false;
    check_cuda(cudaStreamEndCapture(stream, &graph), "recording a step");
    return graph;
  }
  CudaStream stream;
  cudaGraph_t graph = nullptr;
  bool open = true;
};

}  // namespace

CudaStepMemory::CudaStepMemory(CudaDevice& device)
    : device_(device), values_(device.allocate(kCapacity + kTimesBytes)) {
  for (int i = 0; i < kHosts; ++i) {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, kCapacity), "pinned memory");
    hosts_[i] = static_cast<std::byte*>(memory);
    check_cuda(cudaEventCreateWithFlags(&read_[i], cudaEventDisableTiming), "an event");
  }
}

CudaStepMemory::~CudaStepMemory() {
  for (std::byte* host : hosts_) cudaFreeHost(host);
  for (CUevent_st* event : read_) cudaEventDestroy(event);
  if (beside_) cudaStreamDestroy(beside_);
}

std::byte* CudaStepMemory::next_host() {
  check_cuda(cudaEventSynchronize(read_[host_]), "a kernel failed");
  return hosts_[host_];
}

void CudaStepMemory::host_is_read() {
  check_cuda(cudaEventRecord(read_[host_], device_.stream()), "recording an event");
  host_ = (host_ + 1) % kHosts;
}

// Only what lies where the step before will write its tokens: there are those of an earlier one.
void CudaStepMemory::fetch_too_early(BeginStepCudaParams& step) {
  if (!step.previous || step.previous != static_cast<void*>(pieces_[kRead].get())) return;
  if (!beside_) check_cuda(cudaStreamCreateWithFlags(&beside_, cudaStreamNonBlocking), "a stream");
  begin_step_cuda(beside_, {.previous = step.previous,
                            .to = step.to,
                            .num_previous = std::exchange(step.num_previous, 0),
                            .began = step.began});
  const auto fetched = device_.record_event(beside_);
  check_cuda(cudaStreamWaitEvent(device_.stream(), fetched.get(), 0), "waiting for an event");
}

const CudaStepMemory::Memory& CudaStepMemory::at_least(Piece piece, size_t bytes) {
  if (bytes > sizes_[piece]) {
    pieces_[piece] = nullptr;
    pieces_[piece] = device_.allocate(bytes);
    sizes_[piece] = bytes;
  }
  return pieces_[piece];
}

CudaRecordedStep::CudaRecordedStep(std::shared_ptr<CudaDevice> device, StepRecording recording)
    : device_(std::move(device)), recording_(std::move(recording)) {
  place_outputs();
  run_once();
  capture();
}

CudaRecordedStep::~CudaRecordedStep() {
  if (!graph_) return;
  cudaStreamSynchronize(device_->stream());
  cudaGraphExecDestroy(graph_);
}

void CudaRecordedStep::place_outputs() {
  const auto& outputs = recording_.outputs;
  std::vector<size_t> at;
  size_t kept_bytes = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    size_t& end = i < recording_.num_read ? read_bytes_ : kept_bytes;
    at.push_back(end);
    end += round_up(outputs[i].nbytes(), 256);
  }
  CudaStepMemory& memory = device_->step_memory();
  if (read_bytes_ > 0) read_ = memory.at_least(CudaStepMemory::kRead, read_bytes_);
  if (kept_bytes > 0) kept_ = memory.at_least(CudaStepMemory::kKept, kept_bytes);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& owner = i < recording_.num_read ? read_ : kept_;
    output_memory_.push_back(owner.get() + at[i]);
    outputs_.push_back(wrap_memory(output_memory_.back(), outputs[i].shape(), outputs[i].dtype(),
                                   [owner](void*) {}));
  }
  at.resize(recording_.num_read);
  read_at_ = std::move(at);
}

// Loads the kernels, and whatever ops keep on the device from their first call on. The outputs'
// memory may be in use by other recorded steps.
void CudaRecordedStep::run_once() {
  std::vector<mx::array> outputs;
  std::vector<void*> memory;
  for (const mx::array& output : recording_.outputs) {
    outputs.push_back(device_->take_array(output.shape(), output.dtype()));
    memory.push_back(outputs.back().data<void>());
  }
  recording_.run(memory);
  // Results of steps that are under way at the same time.
  std::vector<std::shared_ptr<void>> results;
  for (int i = 0; i < 3 && read_bytes_ > 0; ++i)
    results.push_back(device_->take_pinned(kTimesBytes + read_bytes_));
}

void CudaRecordedStep::capture() {
  CudaStepMemory& memory = device_->step_memory();
  // Addresses are only written down while a step is recorded: a first try may find out how much
  // memory is needed.
  const auto nowhere = std::uintptr_t{1} << 40;
  for (size_t needed = 0;;) {
    activations_ = memory.at_least(CudaStepMemory::kActivations, needed);
    const size_t size = memory.size(CudaStepMemory::kActivations);
    std::byte* base = size > 0 ? activations_.get() : reinterpret_cast<std::byte*>(nowhere);
    CudaRecording recording(memory.range(), base, *recording_.values.layout);
    Capture capture(device_->stream());
    {
      const CudaDevice::Recorder recorder(*device_, recording);
      recording_.run(output_memory_);
    }
    const cudaGraph_t graph = capture.end();
    needed = recording.peak();
    if (needed > size) continue;
    fixed_bytes_ = recording.fixed_bytes();
    fills_ = recording.take_fills();
    check_cuda(cudaGraphInstantiate(&graph_, graph, 0), "recording a step");
    check_cuda(cudaGraphUpload(graph_, device_->stream()), "recording a step");
    return;
  }
}

std::optional<LaunchedStep> CudaRecordedStep::launch(const StepValues& values,
                                                     const std::optional<mx::array>& previous) {
  if (!fits_recording(recording_, values, previous)) return std::nullopt;
  CudaStepMemory& memory = device_->step_memory();
  std::byte* host = memory.next_host();
  StepWriter writer(host, memory.range());
  for (const auto& fill : fills_) fill(values, writer);
  if (!writer.fits()) return std::nullopt;
  BeginStepCudaParams begin = {
      .host = host,
      .block = memory.range().device,
      .fixed = static_cast<int64_t>(fixed_bytes_),
      .tail = static_cast<int64_t>(CudaStepMemory::kTail),
      .tail_bytes = static_cast<int64_t>(round_up(writer.tail_bytes(), 16)),
      .previous = previous ? previous->data<int32_t>() : nullptr,
      .to = recording_.previous.data<int32_t>(),
      .num_previous = previous ? static_cast<int64_t>(previous->size()) : 0,
      .began = memory.began()};
  if (device_->breaks_step_order()) memory.fetch_too_early(begin);
  begin_step_cuda(device_->stream(), begin);
  memory.host_is_read();
  check_cuda(cudaGraphLaunch(graph_, device_->stream()), "running a recorded step");
  recording_.count();
  return LaunchedStep(outputs_, mx::array(uint8_t{1}), nullptr, send_results());
}

std::unique_ptr<HostCopies> CudaRecordedStep::send_results() {
  if (read_bytes_ == 0)
    return std::make_unique<CudaResults>(device_, nullptr, std::vector<mx::array>());
  const auto results = device_->take_pinned(kTimesBytes + read_bytes_);
  auto* to = static_cast<std::byte*>(results.get()) + kTimesBytes;
  end_step_cuda(device_->stream(), {.results = read_.get(),
                                    .host = to,
                                    .bytes = static_cast<int64_t>(read_bytes_),
                                    .began = device_->step_memory().began(),
                                    .times = static_cast<StepTimes*>(results.get())});
  std::vector<mx::array> arrays;
  for (size_t i = 0; i < recording_.num_read; ++i)
    arrays.push_back(wrap_memory(to + read_at_[i], outputs_[i].shape(), outputs_[i].dtype(),
                                 [results](void*) {}));
  return std::make_unique<CudaResults>(device_, results, std::move(arrays));
}

std::unique_ptr<RecordedStep> CudaDevice::record(StepRecording recording) {
  return std::make_unique<CudaRecordedStep>(shared_from_this(), std::move(recording));
}

}  // namespace quire::ops
