#include "emulated_gpu.h"

#include <mlx/backend/metal/device.h>
#include <mlx/scheduler.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "emulator.h"
#include "ops/metal/apple_encoder.h"
#include "ops/runtime/array_memory.h"

namespace quire::emulator::testing {
namespace {

namespace mx = mlx::core;

std::atomic<int64_t> in_all_orders{0}, in_one_order{0};

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

// Pools that nobody may touch but while a kernel runs.
class GuardedPools : public std::enable_shared_from_this<GuardedPools> {
 public:
  mx::array make(const mx::Shape& shape, mx::Dtype dtype) {
    constexpr size_t kPage = 16384;
    const size_t bytes = (ops::array_bytes(shape, dtype) + kPage - 1) / kPage * kPage;
    void* memory = ::mmap(nullptr, std::max(bytes, kPage), PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    const std::lock_guard lock(mutex_);
    bytes_[memory] = std::max(bytes, kPage);
    return ops::wrap_memory(memory, shape, dtype, [pools = shared_from_this()](void* m) {
      const std::lock_guard own_lock(pools->mutex_);
      ::munmap(m, pools->bytes_.at(m));
      pools->bytes_.erase(m);
    });
  }
  void protect(const mx::metal::Dispatch& dispatch, int protection) {
    const std::lock_guard lock(mutex_);
    for (const auto& [index, bound] : dispatch.arguments) {
      const auto pool = bytes_.find(const_cast<char*>(bound.memory.data<char>()));
      if (pool != bytes_.end()) ::mprotect(pool->first, pool->second, protection);
    }
  }

 private:
  std::mutex mutex_;
  std::map<void*, size_t> bytes_;
};

class EmulatedGpu final : public ops::MetalDevice {
 public:
  explicit EmulatedGpu(const EmulatedGpuOptions& options) : options_(options) {}
  std::string description() const override { return "an emulator of Metal"; }

  void encode(mx::Stream stream, const char* op, const ops::MetalKernel& kernel,
              const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    const std::lock_guard lock(encoding_);
    commands_.begin_node(inputs, outputs);
    ops::AppleEncoder encoder(metal_, commands_, op);
    kernel(encoder, inputs, outputs);
    mx::scheduler::enqueue(stream, [this, commands = commands_.end_encoding()] {
      const std::lock_guard one_at_a_time(running_);
      for (const mx::metal::Dispatch& dispatch : commands.dispatches) {
        pools_->protect(dispatch, PROT_READ | PROT_WRITE);
        launch(dispatch);
        pools_->protect(dispatch, PROT_NONE);
      }
    });
  }
  mx::allocator::Data allocate_array(size_t bytes) override { return memory_.allocate(bytes); }
  std::optional<mx::allocator::Data> wrap_pages(void* pages, size_t,
                                                std::shared_ptr<const void> owner) override {
    return ops::wrap_data(pages, [owner = std::move(owner)](void*) {});
  }
  mx::array make_pool(const mx::Shape& shape, mx::Dtype dtype) override {
    return options_.guard_pools ? pools_->make(shape, dtype) : MetalDevice::make_pool(shape, dtype);
  }

 private:
  void launch(const mx::metal::Dispatch& dispatch) {
    std::vector<std::unique_ptr<Copied>> copies;
    std::vector<Copied*> written;
    Launch launch = {.kernel = dispatch.pipeline->kernel,
                     .constants = dispatch.pipeline->constants,
                     .threadgroup_bytes = dispatch.threadgroup_bytes};
    const auto size = [](const MTL::Size& s) {
      return Size3{static_cast<uint32_t>(s.width), static_cast<uint32_t>(s.height),
                   static_cast<uint32_t>(s.depth)};
    };
    launch.groups = size(dispatch.groups);
    launch.threads = size(dispatch.threads);
    size_t written_bytes = 0;
    for (const auto& [index, bound] : dispatch.arguments) {
      if (!bound.numbers.empty()) {
        launch.buffers[index] = {const_cast<char*>(bound.numbers.data()), bound.numbers.size(),
                                 /*is_read_only=*/true};
        continue;
      }
      // Arrays of MLX's allocator for the CPU begin anywhere; a pool of the device may be too large
      // to copy.
      const bool is_aligned = reinterpret_cast<uintptr_t>(bound.memory.data<char>()) % 64 == 0;
      void* data = const_cast<char*>(bound.memory.data<char>());
      if (!bound.is_written || !is_aligned) {
        copies.push_back(std::make_unique<Copied>(bound.memory));
        data = copies.back()->data();
        if (bound.is_written) written.push_back(copies.back().get());
      }
      launch.buffers[index] = {data, bound.memory.nbytes(), !bound.is_written};
      if (bound.is_written) written_bytes += bound.memory.nbytes();
    }
    run(launch, written_bytes);
    for (Copied* copy : written) copy->write_back();
  }

  // What is written is copied for each order, but for pools that tests make to be huge.
  void run(const Launch& launch, size_t written_bytes) {
    constexpr size_t kMostCopied = size_t{256} << 20;
    if (options_.all_orders && written_bytes <= kMostCopied) {
      run_in_all_orders(launch);
      in_all_orders.fetch_add(1);
      return;
    }
    constexpr Order kOrders[] = {Order::kForward, Order::kBackward, Order::kShuffled};
    const auto number = static_cast<uint32_t>(in_one_order.fetch_add(1));
    emulator::run(launch, kOrders[number % 3], number);
  }

  const EmulatedGpuOptions options_;
  std::mutex encoding_, running_;
  mx::metal::Device metal_;
  mx::metal::CommandEncoder commands_;
  ops::ArrayMemory memory_;
  std::shared_ptr<GuardedPools> pools_ = std::make_shared<GuardedPools>();
};

}  // namespace

std::shared_ptr<ops::MetalDevice> make_emulated_gpu(const EmulatedGpuOptions& options) {
  return std::make_shared<EmulatedGpu>(options);
}

LaunchCounts launch_counts() { return {in_all_orders.load(), in_one_order.load()}; }

}  // namespace quire::emulator::testing
