#include "ops/runtime/cpu_device.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/numa.h"
#include "ops/cpu/aligned_bytes.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/runtime/array_memory.h"

namespace quire::ops {
namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(std::vector<int> nodes) : nodes_(std::move(nodes)) {}

  const char* name() const override { return "cpu"; }
  std::string description() const override {
    std::string kernels = cpu_isa_name() + " kernels";
    if (cpu_isa() == CpuIsa::kPortable) kernels += " (slow: for CPUs without AVX2)";
    if (nodes_.empty()) return kernels;
    return kernels + ", memory over " + std::to_string(nodes_.size()) + " NUMA nodes";
  }
  const char* kernel_name() const override { return cpu_kernel_name(); }
  ArrayMemory* host_memory() override { return &memory_; }

  void* take(size_t bytes) override { return memory_.take(bytes); }
  void give_back(void* memory) noexcept override { ArrayMemory::give_back(memory); }
  mx::array take_array(const mx::Shape& shape, mx::Dtype dtype) override {
    return mx::array(memory_.allocate(array_bytes(shape, dtype)), shape, dtype);
  }
  std::shared_ptr<std::byte[]> allocate(size_t bytes) override {
    auto memory = allocate_aligned(bytes);
    // Less shares its pages with the heap.
    if (bytes >= kOwnPages) spread(memory.get(), bytes);
    return memory;
  }
  mx::array make_pool(const mx::Shape& shape, mx::Dtype dtype) override {
    mx::array pool = make_lazy_array(shape, dtype);
    spread(pool.data<std::byte>(), pool.nbytes());
    return pool;
  }
  mx::array make_array(const void* values, const mx::Shape& shape, mx::Dtype dtype) override {
    mx::array result = take_array(shape, dtype);
    if (result.nbytes() > 0) std::memcpy(result.data<std::byte>(), values, result.nbytes());
    return result;
  }
  std::unique_ptr<HostCopies> copy_to_host(const std::vector<mx::array>& arrays) override {
    return wait_by_evaluating(arrays);
  }
  void upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void synchronize() override { mx::synchronize(); }
  bool owns(const void*) const override { return true; }

 private:
  // What is not spread is slower, and no error: whoever chose the nodes has tried it.
  void spread(void* memory, size_t bytes) const {
    if (!nodes_.empty()) (void)spread_pages(memory, bytes, nodes_);
  }

  ArrayMemory memory_;
  const std::vector<int> nodes_;
};

}  // namespace

std::shared_ptr<Device> make_cpu_device(std::vector<int> nodes) {
  return std::make_shared<CpuDevice>(std::move(nodes));
}
std::shared_ptr<Device> make_cpu_device() { return make_cpu_device(std::vector<int>()); }

}  // namespace quire::ops
