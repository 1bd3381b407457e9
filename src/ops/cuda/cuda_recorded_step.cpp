#include "ops/cuda/cuda_recorded_step.h"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <utility>

#include "ops/cuda/cuda_error.h"
#include "ops/runtime/array_memory.h"

namespace quire::ops {
namespace {

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

constexpr size_t kTimesBytes = 256;  // of a step's results, which are behind them
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

// The results of a step that writes them into pinned memory by itself, where a later step will
// write its own. Kept by the recording: a step that is launched makes nothing new.
class CudaResults final : public HostCopies {
 public:
  CudaResults(std::shared_ptr<CudaDevice> device, std::vector<mx::array> arrays)
      : device_(std::move(device)), arrays_(std::move(arrays)) {}

  // From now on they are those of this step, which was just launched. No times: the host reads
  // nothing of it.
  void begin(const StepInPiece& step, const StepTimes* times, bool has_new_rows) {
    step_ = step;
    times_ = times;
    has_new_rows_ = has_new_rows;
    number_ = device_->next_step();
    waited_ = false;
  }
  bool are_there() const override { return device_->step_memory().has_ended(step_); }
  const std::vector<mx::array>& wait() override {
    if (std::exchange(waited_, true)) return arrays_;
    device_->step_memory().wait_for(step_);
    if (times_) device_->note_step(number_, times_->began, times_->ended, has_new_rows_);
    return arrays_;
  }

 private:
  std::shared_ptr<CudaDevice> device_;
  std::vector<mx::array> arrays_;
  StepInPiece step_;
  const StepTimes* times_ = nullptr;
  bool has_new_rows_ = false, waited_ = false;
  int64_t number_ = 0;
};

CudaStepMemory::CudaStepMemory(CudaDevice& device)
    : device_(device), values_(device.allocate(kCapacity + kTimesBytes)) {
  for (Host& host : hosts_) {
    void* memory = nullptr;
    check_cuda(cudaMallocHost(&memory, kCapacity + kResults), "pinned memory");
    host.memory = static_cast<std::byte*>(memory);
    check_cuda(cudaEventCreateWithFlags(&host.event, cudaEventDisableTiming), "an event");
  }
}

CudaStepMemory::~CudaStepMemory() {
  for (const Host& host : hosts_) {
    cudaFreeHost(host.memory);
    cudaEventDestroy(host.event);
  }
  if (beside_) cudaStreamDestroy(beside_);
}

StepHostMemory CudaStepMemory::next_host(uint64_t recording) {
  Host& host = hosts_[next_];
  wait_for({next_, host.launched});
  const bool is_kept = std::exchange(host.recording, recording) == recording;
  return {.memory = host.memory, .piece = next_, .is_kept = is_kept};
}

StepInPiece CudaStepMemory::launched() {
  const int piece = std::exchange(next_, (next_ + 1) % kHosts);
  check_cuda(cudaEventRecord(hosts_[piece].event, device_.stream()), "recording an event");
  return {piece, ++hosts_[piece].launched};
}

bool CudaStepMemory::has_ended(const StepInPiece& step) const {
  const Host& host = hosts_[step.piece];
  return step.number <= host.ended || cudaEventQuery(host.event) != cudaErrorNotReady;
}

// A step whose end is not known is the last one that had its piece.
void CudaStepMemory::wait_for(const StepInPiece& step) {
  Host& host = hosts_[step.piece];
  if (step.number <= host.ended) return;
  device_.wait_for(host.event);
  host.ended = step.number;
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
    : device_(std::move(device)),
      recording_(std::move(recording)),
      number_(device_->step_memory().add_recording()) {
  place_outputs();
  place_results();
  run_once();
  capture();
}

CudaRecordedStep::~CudaRecordedStep() {
  if (!graph_) return;
  device_->wait_at_an_end(nullptr);
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
  std::vector<mx::array> placed;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& owner = i < recording_.num_read ? read_ : kept_;
    output_memory_.push_back(owner.get() + at[i]);
    placed.push_back(wrap_memory(output_memory_.back(), outputs[i].shape(), outputs[i].dtype(),
                                 [owner](void*) {}));
  }
  outputs_ = std::make_shared<const std::vector<mx::array>>(std::move(placed));
  at.resize(recording_.num_read);
  read_at_ = std::move(at);
}

void CudaRecordedStep::place_results() {
  if (kTimesBytes + read_bytes_ > CudaStepMemory::kResults)
    throw std::runtime_error("CUDA: a recorded step has too many results");
  for (int host = 0; host < CudaStepMemory::kHosts; ++host) {
    std::vector<mx::array> arrays;
    for (size_t i = 0; i < recording_.num_read; ++i) {
      const mx::array& output = recording_.outputs[i];
      arrays.push_back(wrap_memory(device_->step_memory().results(host) + kTimesBytes + read_at_[i],
                                   output.shape(), output.dtype(), [device = device_](void*) {}));
    }
    results_[host] = std::make_shared<CudaResults>(device_, std::move(arrays));
  }
}

// For the next step of a piece. Mostly nobody has those of the last one any more.
std::shared_ptr<CudaResults> CudaRecordedStep::results_of(int piece) {
  auto& results = results_[piece];
  if (results.use_count() > 1) results = std::make_shared<CudaResults>(*results);
  return results;
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
    CudaRecording recording(memory.range(), base, recording_.values);
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
  const StepHostMemory host = memory.next_host(number_);
  StepWriter writer(host, memory.range());
  for (const auto& fill : fills_) {
    fill(values, writer);
    if (!writer.fits()) return memory.spoil(), std::nullopt;
  }
  BeginStepCudaParams begin = {
      .host = host.memory,
      .block = memory.range().device,
      .fixed = static_cast<int64_t>(fixed_bytes_),
      .tail = static_cast<int64_t>(CudaStepMemory::kTail),
      .tail_bytes = static_cast<int64_t>(round_up(writer.tail_bytes(), 16)),
      .previous = previous ? previous->data<int32_t>() : nullptr,
      .to = recording_.previous.data<int32_t>(),
      .num_previous = previous ? static_cast<int64_t>(previous->size()) : 0,
      .began = memory.began()};
  // Before anything runs: if there is no memory for it, nothing has to be taken back.
  std::shared_ptr<CudaResults> results = results_of(host.piece);
  if (device_->breaks_step_order()) memory.fetch_too_early(begin);
  begin_step_cuda(device_->stream(), begin);
  check_cuda(cudaGraphLaunch(graph_, device_->stream()), "running a recorded step");
  const StepTimes* times = nullptr;
  if (read_bytes_ > 0) times = send_results(memory.results(host.piece));
  results->begin(memory.launched(), times, values.has_new_rows);
  recording_.count();
  return LaunchedStep(outputs_, done_, nullptr, std::move(results));
}

// Times and outputs, to pinned memory.
const StepTimes* CudaRecordedStep::send_results(std::byte* to) {
  auto* times = reinterpret_cast<StepTimes*>(to);
  end_step_cuda(device_->stream(), {.results = read_.get(),
                                    .host = to + kTimesBytes,
                                    .bytes = static_cast<int64_t>(read_bytes_),
                                    .began = device_->step_memory().began(),
                                    .times = times});
  return times;
}

std::unique_ptr<RecordedStep> CudaDevice::record(StepRecording recording) {
  return std::make_unique<CudaRecordedStep>(shared_from_this(), std::move(recording));
}

}  // namespace quire::ops
