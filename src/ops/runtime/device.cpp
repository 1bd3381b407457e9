#include "ops/runtime/device.h"

#include <stdexcept>

#include "ops/cuda/cuda_device.h"
#include "ops/cuda/has_cuda.h"

namespace quire::ops {

std::shared_ptr<Device> make_cuda_device() {
  if constexpr (kHasCuda) return std::make_shared<CudaDevice>();
  throw std::runtime_error("CUDA: this build has no kernels for NVIDIA GPUs");
}

}  // namespace quire::ops
