#pragma once
#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/cpu/aligned_bytes.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/runtime/array_memory.h"
#include "ops/runtime/device.h"
#include "ops/runtime/recorded_step.h"

// For tests: a device with memory of its own, whose kernels compute on the host, in memory that MLX
// is told nothing of. What is given back is overwritten and never used again, so that a kernel
// which still reads it gives wrong results.
namespace quire::ops::testing {

namespace mx = mlx::core;

// Writes a step's values over those that its kernels were made with, and runs these again. For
// kernels that read all of them when they run: those of recurrent states do not.
class TestRecordedStep final : public RecordedStep {
 public:
  TestRecordedStep(Device& device, StepRecording recording)
      : device_(device), recording_(std::move(recording)) {
    for (const mx::array& output : recording_.outputs)
      memory_.push_back(device_.take_array(output.shape(), output.dtype()));
  }

  std::optional<LaunchedStep> launch(const StepValues& values,
                                     const std::optional<mx::array>& previous) override {
    if (!fits_recording(recording_, values, previous)) return std::nullopt;
    overwrite(values);
    if (previous)
      std::memcpy(recording_.previous.data<void>(), previous->data<void>(), previous->nbytes());
    std::vector<void*> outputs;
    for (mx::array& array : memory_) {
      std::memset(array.data<void>(), 0xEE, array.nbytes());
      outputs.push_back(array.data<void>());
    }
    recording_.count();
    run_on_a_new_thread(outputs);
    const auto read = memory_.begin() + static_cast<ptrdiff_t>(recording_.num_read);
    return LaunchedStep(std::make_shared<std::vector<mx::array>>(memory_), mx::array(uint8_t{1}),
                        nullptr, device_.copy_to_host({memory_.begin(), read}));
  }

 private:
  template <class T>
  static void assign(const T& to, const T& from) {
    const_cast<T&>(to) = from;  // of the same length, and so in place
  }
  void overwrite(const StepValues& from) {
    const StepValues& to = recording_.values;
    assign(*to.layout, *with_own_tables(*from.layout));
    assign(*to.ids, *from.ids);
    assign(*to.from, *from.from);
    if (to.samples) assign(*to.samples, *from.samples);
  }

  // The CPU's kernels remember, on their thread, what they made of a layout.
  void run_on_a_new_thread(const std::vector<void*>& outputs) {
    std::exception_ptr error;
    std::thread thread([&] {
      try {
        recording_.run(outputs);
      } catch (...) {
        error = std::current_exception();
      }
    });
    thread.join();
    if (error) std::rethrow_exception(error);
  }

  Device& device_;
  StepRecording recording_;
  std::vector<mx::array> memory_;  // of the outputs
};

class TestDevice final : public Device, public std::enable_shared_from_this<TestDevice> {
 public:
  // "cpu": it runs the CPU's kernels.
  explicit TestDevice(std::string name = "test", bool records = false)
      : name_(std::move(name)), records_(records) {}

  const char* name() const override { return name_.c_str(); }
  std::string description() const override { return "a device of tests"; }
  const char* kernel_name() const override {
    return name_ == "cpu" ? cpu_kernel_name() : name_.c_str();
  }

  // The kernels before the `step`th wait from now on fail, and the device is lost with them.
  void lose_at_wait(int64_t step) { waits_left_ = step; }
  bool is_lost() override { return is_lost_; }

  void* take(size_t bytes) override {
    check_lost();
    if (bytes > free_bytes()) throw std::runtime_error("out of memory");
    auto block = allocate_aligned(bytes + 1);
    std::memset(block.get(), 0xEE, bytes);
    const std::lock_guard lock(mutex_);
    ++taken_;
    void* memory = block.get();
    blocks_[static_cast<std::byte*>(memory)] = {std::move(block), bytes};
    held_ += bytes;
    return memory;
  }
  void give_back(void* memory) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = blocks_.find(static_cast<std::byte*>(memory));
    std::memset(memory, 0xDD, it->second.second);
    // A grave for each block would fill the memory in a long test.
    graves_[next_grave_++ % std::size(graves_)] = std::move(it->second.first);
    held_ -= it->second.second;
    blocks_.erase(it);
  }
  mx::array take_array(const mx::Shape& shape, mx::Dtype dtype) override {
    size_t bytes = mx::size_of(dtype);
    for (const auto length : shape) bytes *= static_cast<size_t>(length);
    return wrap_memory(take(bytes), shape, dtype,
                       [self = shared_from_this()](void* p) { self->give_back(p); });
  }
  std::shared_ptr<std::byte[]> allocate(size_t bytes) override {
    return {static_cast<std::byte*>(take(bytes)),
            [self = shared_from_this()](std::byte* p) { self->give_back(p); }};
  }
  mx::array make_pool(const mx::Shape& shape, mx::Dtype dtype) override {
    return take_array(shape, dtype);
  }
  mx::array make_array(const void* values, const mx::Shape& shape, mx::Dtype dtype) override {
    mx::array result = take_array(shape, dtype);
    if (result.nbytes() > 0) std::memcpy(result.data<void>(), values, result.nbytes());
    return result;
  }
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  std::unique_ptr<HostCopies> copy_to_host(const std::vector<mx::array>& arrays) override {
    struct Copies final : HostCopies {
      std::shared_ptr<TestDevice> device;
      std::vector<mx::array> arrays;
      const std::vector<mx::array>& wait() override {
        if (device->waits_left_ > 0 && --device->waits_left_ == 0) device->is_lost_ = true;
        device->check_lost();
        return arrays;
      }
    };
    auto copies = std::make_unique<Copies>();
    copies->device = shared_from_this();
    int64_t bytes = 0;
    for (const mx::array& a : arrays) bytes += static_cast<int64_t>(a.nbytes());
    most_to_host_ = std::max(most_to_host_.load(), bytes);
    for (const mx::array& a : arrays) {
      const auto memory = allocate_aligned(a.nbytes() + 1);
      std::memcpy(memory.get(), a.data<void>(), a.nbytes());
      copies->arrays.push_back(wrap_memory(memory.get(), a.shape(), a.dtype(), [memory](void*) {}));
    }
    return copies;
  }
  bool records_steps() const override { return records_; }
  std::unique_ptr<RecordedStep> record(StepRecording recording) override {
    return std::make_unique<TestRecordedStep>(*this, std::move(recording));
  }
  void synchronize() override { check_lost(); }
  bool owns(const void* memory) const override {
    const auto* address = static_cast<const std::byte*>(memory);
    const std::lock_guard lock(mutex_);
    auto it = blocks_.upper_bound(const_cast<std::byte*>(address));
    if (it == blocks_.begin()) return false;
    --it;
    return address - it->first <= static_cast<ptrdiff_t>(it->second.second);
  }
  // Of a GPU with a GiB, some of it in use.
  std::optional<size_t> free_bytes() const override {
    return total_ - std::min(total_, in_use_by_others_ + held_);
  }
  std::optional<size_t> total_bytes() const override { return total_; }
  void set_memory(size_t total, size_t in_use_by_others) {
    total_ = total;
    in_use_by_others_ = in_use_by_others;
  }

  size_t used() const {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }
  int64_t taken() const { return taken_; }
  int64_t most_bytes_to_host() const { return most_to_host_; }  // of a call of copy_to_host

 private:
  void check_lost() const {
    if (is_lost_) throw std::runtime_error("a kernel failed: the device is on fire");
  }

  std::string name_;
  bool records_;
  std::atomic<int64_t> waits_left_{0};
  std::atomic<bool> is_lost_{false};
  mutable std::mutex mutex_;
  std::map<std::byte*, std::pair<std::shared_ptr<std::byte[]>, size_t>> blocks_;
  std::shared_ptr<std::byte[]> graves_[256];
  size_t next_grave_ = 0;
  size_t total_ = size_t{1} << 30, in_use_by_others_ = 0;
  std::atomic<size_t> held_{0};  // bytes
  std::atomic<int64_t> most_to_host_{0};
  int64_t taken_ = 0;
};

}  // namespace quire::ops::testing
