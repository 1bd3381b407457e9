#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ops/cpu/aligned_bytes.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/runtime/array_memory.h"
#include "ops/runtime/device.h"

namespace quire::ops {
namespace {

class CpuDevice final : public Device {
 public:
  const char* name() const override { return "cpu"; }
  std::string description() const override { return cpu_isa_name() + " kernels"; }
  const char* kernel_name() const override { return cpu_kernel_name(); }
  ArrayMemory* host_memory() override { return &memory_; }

  void* take(size_t bytes) override { return memory_.take(bytes); }
  void give_back(void* memory) noexcept override { ArrayMemory::give_back(memory); }
  mx::array take_array(const mx::Shape& shape, mx::Dtype dtype) override {
    return mx::array(memory_.allocate(array_bytes(shape, dtype)), shape, dtype);
  }
  std::shared_ptr<std::byte[]> allocate(size_t bytes) override { return allocate_aligned(bytes); }
  mx::array make_pool(const mx::Shape& shape, mx::Dtype dtype) override {
    return make_lazy_array(shape, dtype);
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
  ArrayMemory memory_;
};

}  // namespace

std::shared_ptr<Device> make_cpu_device() { return std::make_shared<CpuDevice>(); }

}  // namespace quire::ops
