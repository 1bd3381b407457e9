#include "ops/runtime/host_arrays.h"

namespace quire::ops {
namespace {

// An array of the device that stands for another one.
class DeviceCopy {
 public:
  DeviceCopy(Device& device, const KernelArray& original)
      : device_(device), original_(original), copy_(original) {
    if (device.owns(original.data<void>())) return;
    memory_ = device.take(original.nbytes());
    copy_.set_data(memory_);
  }
  ~DeviceCopy() {
    if (memory_) device_.give_back(memory_);
  }
  DeviceCopy(const DeviceCopy&) = delete;
  DeviceCopy& operator=(const DeviceCopy&) = delete;

  const KernelArray& array() const { return copy_; }
  void upload() {
    if (memory_ && original_.nbytes() > 0)
      device_.upload(memory_, original_.data<void>(), original_.nbytes());
  }
  void download() {
    if (memory_ && original_.nbytes() > 0)
      device_.download(original_.data<void>(), memory_, original_.nbytes());
  }

 private:
  Device& device_;
  KernelArray original_, copy_;
  void* memory_ = nullptr;  // null: the original is the device's
};

}  // namespace

void run_with_host_arrays(Device& device, KernelInputs inputs, KernelOutputs outputs,
                          const std::vector<int>& alias,
                          const std::function<void(KernelInputs, KernelOutputs)>& run) {
  std::vector<std::unique_ptr<DeviceCopy>> copies;  // of the inputs, then of fresh outputs
  std::vector<KernelArray> in, out;
  for (const KernelArray& input : inputs) {
    copies.push_back(std::make_unique<DeviceCopy>(device, input));
    copies.back()->upload();
    in.push_back(copies.back()->array());
  }
  std::vector<DeviceCopy*> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int source = i < alias.size() ? alias[i] : -1;
    if (source < 0) copies.push_back(std::make_unique<DeviceCopy>(device, outputs[i]));
    results.push_back(source < 0 ? copies.back().get() : copies[static_cast<size_t>(source)].get());
    KernelArray array = outputs[i];
    array.set_data(const_cast<void*>(results.back()->array().data<void>()));
    out.push_back(array);
  }
  run(in, out);
  for (DeviceCopy* result : results) result->download();
}

}  // namespace quire::ops
