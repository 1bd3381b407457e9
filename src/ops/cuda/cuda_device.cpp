#include "ops/cuda/cuda_device.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ops/cuda/cuda_error.h"
#include "ops/cuda/cuda_probe.h"
#include "ops/cuda/cuda_recorded_step.h"
#include "ops/cuda/cuda_traits.h"
#include "ops/runtime/array_memory.h"

namespace quire::ops {
namespace {

// All arrays in one piece of pinned memory, and an event behind them.
class CudaHostCopies final : public HostCopies {
 public:
  CudaHostCopies(std::shared_ptr<CudaDevice> device, const std::vector<mx::array>& arrays)
      : device_(std::move(device)), waited_(arrays.empty()) {
    device_->next_step();
    size_t bytes = 0;
    for (const mx::array& array : arrays) bytes += (array.nbytes() + 63) / 64 * 64;
    if (bytes > 0) memory_ = device_->take_pinned(bytes);
    auto* to = static_cast<std::byte*>(memory_.get());
    for (const mx::array& array : arrays) {
      check_cuda(cudaMemcpyAsync(to, array.data<void>(), array.nbytes(), cudaMemcpyDeviceToHost,
                                 device_->stream()),
                 "a copy to the host");
      copies_.push_back(
          wrap_memory(to, array.shape(), array.dtype(), [memory = memory_](void*) {}));
      to += (array.nbytes() + 63) / 64 * 64;
    }
    copied_ = device_->record_event();
  }
  ~CudaHostCopies() override {
    if (!waited_)
      device_->wait_at_an_end(copied_.get());  // the pinned memory is written until then
  }
  bool are_there() const override { return cudaEventQuery(copied_.get()) != cudaErrorNotReady; }

  const std::vector<mx::array>& wait() override {
    waited_ = true;
    device_->wait_for(copied_.get());
    return copies_;
  }

 private:
  std::shared_ptr<CudaDevice> device_;
  std::shared_ptr<void> memory_;
  std::vector<mx::array> copies_;
  std::shared_ptr<CUevent_st> copied_;
  bool waited_;
};

}  // namespace

CudaDevice::CudaDevice(int index) {
  if (const CudaSupport support = probe_cuda(index); !support.is_usable)
    throw std::runtime_error("CUDA: " + support.reason);
  check_cuda(cudaSetDevice(index), "the GPU cannot be used");
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, index), "asking for the GPU's properties");
  model_ = properties.name;
  multiprocessors_ = properties.multiProcessorCount;
  block_memory_ = cuda_traits().block_memory;
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  stream_ = stream;
  staging_.emplace(stream_, [this](CUevent_st* event) { wait_for(event); });
}

CudaDevice::~CudaDevice() {
  cudaStreamSynchronize(stream_);
  residents_.clear();
  step_memory_.reset();
  for (CUevent_st* event : events_) cudaEventDestroy(event);
  for (const TimedKernels& kernels : timed_)
    for (CUevent_st* event : {kernels.before, kernels.after}) cudaEventDestroy(event);
  for (auto& [size, memory] : pinned_)
    for (void* p : memory) cudaFreeHost(p);
  staging_.reset();
  cudaStreamDestroy(stream_);
}

void* CudaDevice::take(size_t bytes) {
  return recording_ ? recording_->take(bytes) : memory_.take(bytes);
}

void CudaDevice::give_back(void* memory) noexcept {
  recording_ ? recording_->give_back(memory) : memory_.give_back(memory);
}

std::shared_ptr<std::byte[]> CudaDevice::allocate(size_t bytes) {
  auto* memory = static_cast<std::byte*>(memory_.allocate(bytes));
  return {memory, [weak = weak_from_this()](std::byte* p) {
            if (const auto self = weak.lock()) self->memory_.free(p);
          }};
}

mx::array CudaDevice::make_pool(const mx::Shape& shape, mx::Dtype dtype) {
  void* memory = memory_.allocate(array_bytes(shape, dtype));
  return wrap_memory(memory, shape, dtype,
                     [self = shared_from_this()](void* p) { self->memory_.free(p); });
}

mx::array CudaDevice::make_array(const void* values, const mx::Shape& shape, mx::Dtype dtype) {
  const size_t bytes = array_bytes(shape, dtype);
  void* memory = take(bytes);
  upload(memory, values, bytes);
  return wrap(memory, shape, dtype);
}

mx::array CudaDevice::take_array(const mx::Shape& shape, mx::Dtype dtype) {
  return wrap(take(array_bytes(shape, dtype)), shape, dtype);
}

mx::array CudaDevice::wrap(void* memory, const mx::Shape& shape, mx::Dtype dtype) {
  return wrap_memory(memory, shape, dtype,
                     [self = shared_from_this()](void* p) { self->memory_.give_back(p); });
}

void CudaDevice::upload(void* to, const void* from, size_t bytes) {
  if (recording_) throw std::logic_error("CUDA: values are copied while a step is recorded");
  staging_->upload(to, from, bytes);
}

void CudaDevice::download(void* to, const void* from, size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
             "a copy to the host");
  synchronize();
}

void CudaDevice::synchronize() {
  waits_.fetch_add(1, std::memory_order_relaxed);
  check_cuda(cudaStreamSynchronize(stream_), "a kernel failed");
  tell_times();
}

bool CudaDevice::is_lost() {
  // An error of a kernel sticks to all later calls; the others are told once.
  const cudaError_t state = cudaStreamQuery(stream_);
  return state != cudaSuccess && state != cudaErrorNotReady;
}

void CudaDevice::wait_for(CUevent_st* event) {
  waits_.fetch_add(1, std::memory_order_relaxed);
  check_cuda(cudaEventSynchronize(event), "a kernel failed");
  tell_times();
}

void CudaDevice::wait_at_an_end(CUevent_st* event) noexcept {
  waits_.fetch_add(1, std::memory_order_relaxed);
  (void)(event ? cudaEventSynchronize(event) : cudaStreamSynchronize(stream_));
}

std::shared_ptr<void> CudaDevice::take_pinned(size_t bytes) {
  const size_t size = std::bit_ceil(std::max<size_t>(bytes, 4096));
  void* memory = nullptr;
  {
    const std::lock_guard lock(pinned_mutex_);
    auto& bin = pinned_[size];
    if (!bin.empty()) {
      memory = bin.back();
      bin.pop_back();
    }
  }
  if (!memory) {
    check_cuda(cudaMallocHost(&memory, size), "pinned memory");
    const std::lock_guard lock(pinned_mutex_);
    ++counters_.allocations;
  }
  return {memory, [self = shared_from_this(), size](void* p) {
            const std::lock_guard lock(self->pinned_mutex_);
            self->pinned_[size].push_back(p);
          }};
}

std::shared_ptr<CUevent_st> CudaDevice::record_event(CudaStream stream) {
  CUevent_st* event = nullptr;
  {
    const std::lock_guard lock(pinned_mutex_);
    if (!events_.empty()) {
      event = events_.back();
      events_.pop_back();
    }
  }
  if (!event) check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
  std::shared_ptr<CUevent_st> result(event, [self = shared_from_this()](CUevent_st* e) {
    const std::lock_guard lock(self->pinned_mutex_);
    self->events_.push_back(e);
  });
  check_cuda(cudaEventRecord(event, stream), "recording an event");
  return result;
}

void CudaDevice::plan_memory(const std::function<void()>& largest_step) {
  forget_layout();
  memory_.begin_plan();
  largest_step();
  synchronize();
  forget_layout();
  memory_.end_plan();
}

void CudaDevice::forget_layout() {
  const std::lock_guard lock(mutex_);
  of_step_.clear();
  layout_host_ = nullptr;
  if (layout_memory_) give_back(std::exchange(layout_memory_, nullptr));
}

void CudaDevice::time(const std::function<void()>& hand_over, std::function<void(double)> tell) {
  TimedKernels kernels = {.before = nullptr, .after = nullptr, .tell = std::move(tell)};
  check_cuda(cudaEventCreate(&kernels.before), "an event");
  check_cuda(cudaEventCreate(&kernels.after), "an event");
  check_cuda(cudaEventRecord(kernels.before, stream_), "recording an event");
  hand_over();
  check_cuda(cudaEventRecord(kernels.after, stream_), "recording an event");
  const std::lock_guard lock(pinned_mutex_);
  timed_.push_back(std::move(kernels));
}

// Of kernels that have run.
void CudaDevice::tell_times() {
  std::vector<TimedKernels> done;
  {
    const std::lock_guard lock(pinned_mutex_);
    const auto runs = [](const TimedKernels& k) { return cudaEventQuery(k.after) != cudaSuccess; };
    const auto first = std::find_if(timed_.begin(), timed_.end(), runs);
    done.assign(std::move_iterator(timed_.begin()), std::move_iterator(first));
    timed_.erase(timed_.begin(), first);
  }
  for (const TimedKernels& kernels : done) {
    float ms = 0;
    cudaEventElapsedTime(&ms, kernels.before, kernels.after);
    cudaEventDestroy(kernels.before);
    cudaEventDestroy(kernels.after);
    kernels.tell(1e-3 * ms);
  }
}

CudaStepMemory& CudaDevice::step_memory() {
  if (!step_memory_) step_memory_ = std::make_unique<CudaStepMemory>(*this);
  return *step_memory_;
}

void CudaDevice::note_step(int64_t number, uint64_t began, uint64_t ended, bool has_new_rows) {
  const std::lock_guard lock(pinned_mutex_);
  const auto seconds = [](uint64_t from, uint64_t to) {
    return from < to ? 1e-9 * static_cast<double>(to - from) : 0.0;
  };
  if (std::exchange(last_noted_, number) + 1 == number && !has_new_rows) {
    counters_.idle_seconds += seconds(last_end_, began);
    ++counters_.successors;
  }
  last_end_ = ended;
  counters_.busy_seconds += seconds(began, ended);
  ++counters_.replays;
}

DeviceCounters CudaDevice::counters() const {
  const std::lock_guard lock(pinned_mutex_);
  DeviceCounters counters = counters_;
  const CudaMemory::Stats memory = memory_.stats();
  counters.waits = waits_.load() + memory.frees;
  counters.allocations += memory.allocations;
  return counters;
}

std::unique_ptr<HostCopies> CudaDevice::copy_to_host(const std::vector<mx::array>& arrays) {
  return std::make_unique<CudaHostCopies>(shared_from_this(), arrays);
}

std::optional<size_t> CudaDevice::free_bytes() const {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for free memory");
  return free;
}

std::optional<size_t> CudaDevice::total_bytes() const {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "asking for memory");
  return total;
}

const CudaLayout& CudaDevice::layout(const BatchLayoutPtr& layout) {
  if (recording_) return recording_->layout();
  const std::lock_guard lock(mutex_);
  if (layout == layout_host_) return layout_;
  layout_bytes_.clear();
  const auto append = [this](const auto& values) {
    const size_t at = (layout_bytes_.size() + 255) / 256 * 256;
    layout_bytes_.resize(at + values.size() * sizeof(values[0]));
    if (!values.empty())
      std::memcpy(layout_bytes_.data() + at, values.data(), values.size() * sizeof(values[0]));
    return at;
  };
  const BatchLayout& host = *layout;
  const size_t at[] = {append(host.positions),     append(host.slot_mapping),
                       append(host.cu_seqlens),    append(host.seq_lens),
                       append(host.block_offsets), append(host.blocks),
                       append(host.state_slots),   append(host.rows)};
  if (layout_memory_) give_back(layout_memory_);
  layout_memory_ = take(layout_bytes_.size());
  upload(layout_memory_, layout_bytes_.data(), layout_bytes_.size());
  const auto address = [&](int i, auto* type) {
    return reinterpret_cast<decltype(type)>(static_cast<std::byte*>(layout_memory_) + at[i]);
  };
  const int32_t* int32 = nullptr;
  const int64_t* int64 = nullptr;
  layout_ = {.positions = address(0, int32),
             .slot_mapping = address(1, int64),
             .cu_seqlens = address(2, int32),
             .seq_lens = address(3, int32),
             .block_offsets = address(4, int64),
             .blocks = address(5, int32),
             .state_slots = address(6, int32),
             .rows = address(7, int32)};
  layout_host_ = layout;
  of_step_.clear();
  return layout_;
}

std::shared_ptr<const void>& CudaDevice::of_step(const BatchLayoutPtr& host, const StepKey& key) {
  if (recording_) return recording_->of_step(key);
  layout(host);
  const std::lock_guard lock(mutex_);
  return of_step_[key];
}

const void* CudaDevice::resident(const std::shared_ptr<const void>& owner, const void* key,
                                 const std::function<std::span<const std::byte>()>& make) {
  const std::lock_guard lock(mutex_);
  Resident& resident = residents_[key];
  if (!owner || resident.owner.lock() != owner) {
    const auto values = make();
    resident = {.owner = owner, .memory = allocate(values.size())};
    upload(resident.memory.get(), values.data(), values.size());
  }
  return resident.memory.get();
}

}  // namespace quire::ops
