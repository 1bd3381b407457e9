#include "ops/runtime/device.h"

#include <unistd.h>

#include <stdexcept>
#include <string>

#include "base/clock.h"
#include "ops/cuda/cuda_device.h"
#include "ops/cuda/cuda_probe.h"
#include "ops/cuda/has_cuda.h"
#include "ops/metal/apple_gpu.h"
#include "ops/metal/has_metal.h"
#include "ops/runtime/recorded_step.h"

namespace quire::ops {
namespace {

class Evaluated final : public HostCopies {
 public:
  explicit Evaluated(std::vector<mx::array> arrays) : arrays_(std::move(arrays)) {}
  const std::vector<mx::array>& wait() override {
    mx::eval(arrays_);
    return arrays_;
  }

 private:
  std::vector<mx::array> arrays_;
};

}  // namespace

std::unique_ptr<HostCopies> wait_by_evaluating(std::vector<mx::array> arrays) {
  return std::make_unique<Evaluated>(std::move(arrays));
}

CudaSupport find_cuda_support() {
  if constexpr (kHasCuda) return probe_cuda(0);
  return {.is_usable = false,
          .is_there = ::access("/proc/driver/nvidia/version", F_OK) == 0,
          .reason = "this build has no kernels for NVIDIA GPUs"};
}

void Device::time(const std::function<void()>& hand_over, std::function<void(double)> tell) {
  const TimePoint start = Clock::now();
  hand_over();
  tell(seconds_since(start));
}

std::unique_ptr<RecordedStep> Device::record(StepRecording) {
  throw std::logic_error(std::string(name()) + " records no steps");
}

std::shared_ptr<Device> make_cuda_device() {
  if constexpr (kHasCuda) return std::make_shared<CudaDevice>();
  throw std::runtime_error("CUDA: this build has no kernels for NVIDIA GPUs");
}

std::shared_ptr<Device> make_metal_device() {
  if constexpr (kHasMetal) return make_apple_gpu();
  throw std::runtime_error("only builds on macOS run on Apple GPUs");
}

}  // namespace quire::ops
