#include "emulated_gpu.h"

#include <mlx/scheduler.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "emulator.h"
#include "launch.h"
#include "ops/runtime/array_memory.h"

namespace quire::emulator::testing {
namespace {

namespace mx = mlx::core;
using ops::MetalArgument;

// A copy of an array, aligned as on a GPU; it ends where the array does, so that AddressSanitizer
// sees what goes beyond.
class Copied {
 public:
  explicit Copied(const mx::array& a) : array_(a) {
    if (posix_memalign(&memory_, 256, std::max<size_t>(1, a.nbytes())) != 0) throw std::bad_alloc();
    if (a.nbytes() > 0) std::memcpy(memory_, a.data<char>(), a.nbytes());
  }
  ~Copied() { std::free(memory_); }
  Copied(const Copied&) = delete;
  Copied& operator=(const Copied&) = delete;
  void* data() const { return memory_; }
  void write_back() {
    if (array_.nbytes() > 0) std::memcpy(array_.data<char>(), memory_, array_.nbytes());
  }

 private:
  mx::array array_;
  void* memory_ = nullptr;
};

class EmulatedEncoder final : public ops::MetalEncoder {
 public:
  explicit EmulatedEncoder(ops::MetalDevice& device) : device_(device) {}

  void dispatch(const ops::MetalCall& call, std::span<const MetalArgument> arguments) override {
    if (call.groups.x == 0 || call.groups.y == 0 || call.groups.z == 0) return;
    std::vector<std::unique_ptr<Copied>> copies;
    std::vector<Copied*> written;
    Launch launch = launch_of(call, {});
    for (const MetalArgument& a : arguments) {
      if (a.use == MetalArgument::Use::kNumbers) {
        launch.buffers[a.index] = {const_cast<void*>(a.numbers), a.bytes};
        continue;
      }
      // Arrays of MLX's allocator for the CPU begin anywhere; a pool of the device may be too large
      // to copy.
      const bool is_aligned = reinterpret_cast<uintptr_t>(a.array->data<char>()) % 64 == 0;
      void* data = const_cast<char*>(a.array->data<char>());
      if (a.use == MetalArgument::Use::kRead || !is_aligned) {
        copies.push_back(std::make_unique<Copied>(*a.array));
        data = copies.back()->data();
        if (a.use == MetalArgument::Use::kWrite) written.push_back(copies.back().get());
      }
      launch.buffers[a.index] = {data, a.array->nbytes()};
    }
    static uint32_t dispatches = 0;
    constexpr Order kOrders[] = {Order::kForward, Order::kBackward, Order::kShuffled};
    ++dispatches;
    run(launch, kOrders[dispatches % 3], dispatches);
    for (Copied* copy : written) copy->write_back();
  }

  mx::array scratch(int64_t floats) override {
    return device_.take_array({static_cast<int>(std::max<int64_t>(1, floats))}, mx::float32);
  }

 private:
  ops::MetalDevice& device_;
};

// The arrays as they are when the stream gets to them, without the graph.
std::vector<mx::array> weak_copies(const std::vector<mx::array>& arrays) {
  std::vector<mx::array> copies;
  for (const mx::array& a : arrays) copies.push_back(mx::array::unsafe_weak_copy(a));
  return copies;
}

class EmulatedGpu final : public ops::MetalDevice {
 public:
  std::string description() const override { return "an emulator of Metal"; }

  void encode(mx::Stream stream, const char*, const ops::MetalKernel& kernel,
              const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    mx::scheduler::enqueue(
        stream, [this, kernel, in = weak_copies(inputs), out = weak_copies(outputs)]() mutable {
          static std::mutex one_at_a_time;
          const std::lock_guard lock(one_at_a_time);
          EmulatedEncoder encoder(*this);
          kernel(encoder, in, out);
        });
  }
  mx::allocator::Data allocate_array(size_t bytes) override { return memory_.allocate(bytes); }
  std::optional<mx::allocator::Data> wrap_pages(void* pages, size_t,
                                                std::shared_ptr<const void> owner) override {
    return ops::wrap_data(pages, [owner = std::move(owner)](void*) {});
  }

 private:
  ops::ArrayMemory memory_;
};

}  // namespace

std::shared_ptr<ops::MetalDevice> make_emulated_gpu() { return std::make_shared<EmulatedGpu>(); }

}  // namespace quire::emulator::testing
