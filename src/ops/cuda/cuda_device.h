#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ops/cuda/cuda_layout.h"
#include "ops/cuda/cuda_memory.h"
#include "ops/cuda/cuda_staging.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/has_cuda.h"
#include "ops/layout/batch_layout.h"
#include "ops/runtime/device.h"

struct CUevent_st;

namespace quire::ops {

class CudaRecording;
class CudaStepMemory;

// An NVIDIA GPU. Kernels and copies are on one stream.
class CudaDevice final : public Device, public std::enable_shared_from_this<CudaDevice> {
 public:
  // Throws std::runtime_error, naming the reason, if there is no GPU that can run our kernels.
  explicit CudaDevice(int index = 0);
  ~CudaDevice() override;

  const char* name() const override { return "cuda"; }
  std::string description() const override { return model_; }  // "NVIDIA H200"
  const char* kernel_name() const override { return "cuda"; }
  CudaDevice* cuda() override { return this; }
  CudaStream stream() const { return stream_; }

  void* take(size_t bytes) override;
  void give_back(void* memory) noexcept override;
  std::shared_ptr<std::byte[]> allocate(size_t bytes) override;
  mx::array make_pool(const mx::Shape& shape, mx::Dtype dtype) override;
  mx::array make_array(const void* values, const mx::Shape& shape, mx::Dtype dtype) override;
  mx::array take_array(const mx::Shape& shape, mx::Dtype dtype) override;
  std::unique_ptr<HostCopies> copy_to_host(const std::vector<mx::array>& arrays) override;
  void upload(void* to, const void* from, size_t bytes) override;
  void download(void* to, const void* from, size_t bytes) override;
  bool owns(const void* memory) const override { return memory_.owns(memory); }
  std::optional<size_t> free_bytes() const override;
  std::optional<size_t> total_bytes() const override;

  // An array of memory that take() gave; it goes back with the array.
  mx::array wrap(void* memory, const mx::Shape& shape, mx::Dtype dtype);
  void synchronize() override;
  bool is_lost() override;

  // The layout on the device: copied once, by the first of a step's kernels that asks. Valid for
  // kernels that are handed over before another layout is asked for.
  const CudaLayout& layout(const BatchLayoutPtr& layout);
  // What an op keeps for a step beside the layout, such as a work list: empty at first, and given
  // up when another layout is asked for. `key` tells an op's variants apart.
  using StepKey = std::array<int64_t, 9>;
  std::shared_ptr<const void>& of_step(const BatchLayoutPtr& layout, const StepKey& key);
  // A copy of what never changes, such as a rope table: made once and kept as long as `owner` is.
  const void* resident(const std::shared_ptr<const void>& owner, const void* values, size_t bytes) {
    return resident(owner, values,
                    [=] { return std::span(static_cast<const std::byte*>(values), bytes); });
  }
  // The same of what make() returns, the first time; `key` is an address that the owner keeps.
  const void* resident(const std::shared_ptr<const void>& owner, const void* key,
                       const std::function<std::span<const std::byte>()>& make);
  template <class T>
  const T* resident(const std::shared_ptr<const void>& owner, std::span<const T> values) {
    return static_cast<const T*>(resident(owner, values.data(), values.size_bytes()));
  }
  template <class T>
  const T* resident(const std::shared_ptr<const void>& owner, const std::vector<T>& values) {
    return resident(owner, std::span<const T>(values));
  }

  bool records_steps() const override { return true; }
  std::unique_ptr<RecordedStep> record(StepRecording recording) override;
  // Not null while a step is recorded: what ops enqueue then will run later, again and again.
  CudaRecording* recording() const { return recording_; }
  // Lets a recording take the device's place in giving memory and values.
  class Recorder {
   public:
    Recorder(CudaDevice& device, CudaRecording& recording) : device_(device) {
      device_.recording_ = &recording;
    }
    ~Recorder() { device_.recording_ = nullptr; }
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

   private:
    CudaDevice& device_;
  };
  CudaStepMemory& step_memory();
  // For tests, which must notice: while it is on, recorded steps fetch the tokens of a recorded
  // step before them without waiting for it.
  void break_step_order(bool on) { breaks_step_order_ = on; }
  bool breaks_step_order() const { return breaks_step_order_; }
  void plan_memory(const std::function<void()>& largest_step) override;
  void time(const std::function<void()>& hand_over, std::function<void(double)> tell) override;
  // An event behind what was enqueued so far.
  std::shared_ptr<CUevent_st> record_event() { return record_event(stream_); }
  std::shared_ptr<CUevent_st> record_event(CudaStream stream);
  // Numbers what is handed over: a recorded step, or copies to the host after other kernels.
  int64_t next_step() { return ++last_step_; }
  // A recorded step ran from `began` to `ended`, in ns of the device's clock.
  void note_step(int64_t number, uint64_t began, uint64_t ended, bool has_new_rows);

  const CudaMemory& memory() const { return memory_; }
  // Pinned memory of the host, kept for the next of its size.
  std::shared_ptr<void> take_pinned(size_t bytes);
  int multiprocessors() const { return multiprocessors_; }
  size_t block_memory() const { return block_memory_; }  // CudaTraits has it
  DeviceCounters counters() const override;
  // All waits of the host are these and synchronize(): they are counted. In destructors, for whom
  // a kernel's failure is nothing new; null: for all that was handed over.
  void wait_for(CUevent_st* event);
  void wait_at_an_end(CUevent_st* event) noexcept;

 private:
  // Kernels between two events.
  struct TimedKernels {
    CUevent_st *before, *after;
    std::function<void(double)> tell;
  };
  void tell_times();
  void forget_layout();

  struct Resident {
    std::weak_ptr<const void> owner;
    std::shared_ptr<std::byte[]> memory;
  };

  CudaStream stream_ = nullptr;
  std::string model_;
  int multiprocessors_ = 0;
  size_t block_memory_ = 0;
  CudaMemory memory_;
  std::optional<CudaStaging> staging_;
  std::unique_ptr<CudaStepMemory> step_memory_;
  std::atomic<int64_t> last_step_{0};
  CudaRecording* recording_ = nullptr;  // of the thread that hands kernels over
  std::atomic<int64_t> waits_{0};
  std::atomic<bool> breaks_step_order_{false};

  mutable std::mutex pinned_mutex_;                        // of what follows
  std::unordered_map<size_t, std::vector<void*>> pinned_;  // by rounded size
  std::vector<CUevent_st*> events_;                        // not in use
  DeviceCounters counters_;
  std::vector<TimedKernels> timed_;
  int64_t last_noted_ = 0;  // recorded step, and when it ended
  uint64_t last_end_ = 0;
  std::mutex mutex_;  // of what follows
  BatchLayoutPtr layout_host_;
  void* layout_memory_ = nullptr;
  CudaLayout layout_;
  std::vector<std::byte> layout_bytes_;
  std::map<StepKey, std::shared_ptr<const void>> of_step_;
  std::unordered_map<const void*, Resident> residents_;
};

// Host values that kernels read in this step only: copied with the constructor, and their memory
// free for kernels that are handed over after the destructor. Not while a step is recorded, which
// would not see the next step's: cuda_recording.h.
class CudaValues {
 public:
  template <class T>
  CudaValues(CudaDevice& device, const std::vector<T>& values)
      : CudaValues(device, values.data(), values.size() * sizeof(T)) {}
  CudaValues(CudaDevice& device, const void* values, size_t bytes)
      : device_(device), memory_(device.take(bytes)) {
    if (bytes > 0) device_.upload(memory_, values, bytes);
  }
  ~CudaValues() { device_.give_back(memory_); }
  CudaValues(const CudaValues&) = delete;
  CudaValues& operator=(const CudaValues&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  CudaDevice& device_;
  void* memory_;
};

// Memory that kernels use in this step only.
class CudaScratch {
 public:
  CudaScratch(CudaDevice& device, size_t bytes)
      : device_(device), memory_(bytes ? device.take(bytes) : nullptr) {}
  ~CudaScratch() {
    if (memory_) device_.give_back(memory_);
  }
  CudaScratch(const CudaScratch&) = delete;
  CudaScratch& operator=(const CudaScratch&) = delete;
  void* data() const { return memory_; }

 private:
  CudaDevice& device_;
  void* memory_;
};

}  // namespace quire::ops
