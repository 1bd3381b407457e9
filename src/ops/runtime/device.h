#pragma once
#include <mlx/mlx.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/runtime/device_counters.h"

namespace quire::ops {

namespace mx = mlx::core;

class ArrayMemory;
class CudaDevice;
class MetalDevice;
class RecordedStep;
struct StepRecording;

// Arrays on their way to the host.
class HostCopies {
 public:
  virtual ~HostCopies() = default;
  // Whether wait() would not wait, as far as the device knows.
  virtual bool are_there() const { return true; }
  // Waits for them: arrays that the host can read, as long as this object is kept. Throws if a
  // kernel before them failed.
  virtual const std::vector<mx::array>& wait() = 0;
};

// Of arrays in memory that the host reads, too: they are there once they are evaluated.
std::unique_ptr<HostCopies> wait_by_evaluating(std::vector<mx::array> arrays);

// Where kernels run, and where what they read and write lies. A device runs the kernels it is given
// one after another, in the order they were handed over; its memory may be out of the host's reach.
// Any thread may call.
class Device {
 public:
  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual const char* name() const = 0;  // "cpu", "cuda", "metal"
  // What it is, for people and monitors: "NVIDIA H200", "amx kernels".
  virtual std::string description() const = 0;
  // How the KernelLog calls an op's usual kernel here.
  virtual const char* kernel_name() const = 0;

  // The host's arrays, if kernels work on those; null: the device has memory of its own.
  virtual ArrayMemory* host_memory() { return nullptr; }
  virtual CudaDevice* cuda() { return nullptr; }
  virtual MetalDevice* metal() { return nullptr; }

  // Memory for what kernels write, uninitialised, at a multiple of 64 (on a GPU, of 256) bytes.
  // Throws if there is none. It may be given back once the last kernel that uses it was handed
  // over: whoever takes it next is behind that kernel.
  virtual void* take(size_t bytes) = 0;
  virtual void give_back(void* memory) noexcept = 0;
  // The same as an array, given back with its last handle.
  virtual mx::array take_array(const mx::Shape& shape, mx::Dtype dtype) = 0;

  // Memory that stays, such as weights.
  virtual std::shared_ptr<std::byte[]> allocate(size_t bytes) = 0;
  // An uninitialised array that kernels write in place: the pools.
  virtual mx::array make_pool(const mx::Shape& shape, mx::Dtype dtype) = 0;
  // A copy of the host's values.
  virtual mx::array make_array(const void* values, const mx::Shape& shape, mx::Dtype dtype) = 0;
  // Copies host memory to the device's, in the order of kernels. `from` may be changed at once.
  virtual void upload(void* to, const void* from, size_t bytes) = 0;
  // Copies the device's memory to the host's, behind all kernels handed over, and waits for it.
  virtual void download(void* to, const void* from, size_t bytes) = 0;

  // Copies arrays of the device to the host, behind all kernels handed over so far.
  virtual std::unique_ptr<HostCopies> copy_to_host(const std::vector<mx::array>& arrays) = 0;

  // Whether it can record a step's kernels and run them again, without being handed each of them.
  virtual bool records_steps() const { return false; }
  // See recorded_step.h. Only where records_steps() is true.
  virtual std::unique_ptr<RecordedStep> record(StepRecording recording);

  // Hands the largest step there will be over, waits for it, and keeps as much memory as it took:
  // other steps find theirs in that. Throws if there is not enough.
  virtual void plan_memory(const std::function<void()>& largest_step) { largest_step(); }
  // Hands kernels over, and tells how many seconds they take: at once, or before a later wait for
  // what was handed over after them returns.
  virtual void time(const std::function<void()>& hand_over, std::function<void(double)> tell);

  // Until all that was handed over has run. Throws if a kernel failed.
  virtual void synchronize() = 0;
  // Whether a kernel failed in a way that ends the device for this process: nothing runs on it any
  // more, and what its memory holds is lost.
  virtual bool is_lost() { return false; }

  // Whether kernels may be given this memory.
  virtual bool owns(const void* memory) const = 0;
  virtual DeviceCounters counters() const { return {}; }
  // Bytes that can still be allocated, and bytes in all, whoever has them; absent where arrays are
  // in the host's memory.
  virtual std::optional<size_t> free_bytes() const { return std::nullopt; }
  virtual std::optional<size_t> total_bytes() const { return std::nullopt; }
};

std::shared_ptr<Device> make_cpu_device();
// The first NVIDIA GPU that the process may see. Throws std::runtime_error, with the reason, if
// this build or this machine has none that can run the kernels (cuda_support.h asks).
std::shared_ptr<Device> make_cuda_device();
// The GPU of a Mac, which becomes MLX's default device. Throws std::runtime_error, with the reason,
// if this build or this machine has none.
std::shared_ptr<Device> make_metal_device();

}  // namespace quire::ops
