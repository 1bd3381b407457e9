#include "ops/runtime/device.h"

#include <unistd.h>

#include <stdexcept>

#include "ops/cuda/cuda_device.h"
#include "ops/cuda/cuda_probe.h"
#include "ops/cuda/has_cuda.h"

namespace quire::ops {

CudaSupport find_cuda_support() {
  if constexpr (kHasCuda) return probe_cuda(0);
  return {.is_usable = false,
          .is_there = ::access("/proc/driver/nvidia/version", F_OK) == 0,
          .reason = "this build has no kernels for NVIDIA GPUs"};
}

std::shared_ptr<Device> make_cuda_device() {
  if constexpr (kHasCuda) return std::make_shared<CudaDevice>();
  throw std::runtime_error("CUDA: this build has no kernels for NVIDIA GPUs");
}

}  // namespace quire::ops
