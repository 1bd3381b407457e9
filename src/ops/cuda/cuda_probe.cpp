#include "ops/cuda/cuda_probe.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "base/error.h"
#include "ops/cuda/cuda_traits.h"

namespace quire::ops {
namespace {

constexpr int kOldestMajor = 8;  // Ampere: what the kernels' PTX is for
// The run time of a major version needs a driver of that version; CUDA 13's is 580.
constexpr int kOldestDriver = CUDART_VERSION / 1000 * 1000;

std::string version_text(int version) {  // 13010 is 13.1
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

CudaSupport unusable(bool is_there, std::string reason) {
  return {.is_usable = false, .is_there = is_there, .reason = std::move(reason)};
}

}  // namespace

CudaSupport probe_cuda(int index) {
  if (const char* kernels = asked_cuda_kernels(); !knows_cuda_kernels(kernels)) {
    std::string message = "QUIRE_CUDA_KERNELS may be \"plain\" or nothing, but is ";
    message.append(kernels);
    throw LoadError(message);
  }
  int driver = 0;
  cudaDriverGetVersion(&driver);
  if (driver == 0)
    return unusable(false, "no NVIDIA driver is installed here (libcuda.so.1 is not found)");
  if (driver < kOldestDriver)
    return unusable(true, "the NVIDIA driver here is for CUDA " + version_text(driver) +
                              ", but the kernels need one for CUDA " + version_text(kOldestDriver) +
                              " (version 580) or newer");
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  cudaGetLastError();  // it must not be taken for a later call's
  if (counted == cudaErrorNoDevice || (counted == cudaSuccess && count == 0))
    return unusable(false, "the NVIDIA driver shows no GPU (CUDA_VISIBLE_DEVICES may hide one)");
  if (counted != cudaSuccess)
    return unusable(true,
                    std::string("the NVIDIA driver does not work: ") + cudaGetErrorString(counted));
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
    cudaGetLastError();
    return unusable(true, std::string("the GPU cannot be asked: ") + cudaGetErrorString(error));
  }
  const std::string name = properties.name;
  if (properties.major < kOldestMajor)
    return unusable(true, name + " has compute capability " + std::to_string(properties.major) +
                              "." + std::to_string(properties.minor) + ", but the kernels need " +
                              std::to_string(kOldestMajor) + ".0 or newer");
  if (properties.sharedMemPerBlockOptin < kLeastBlockMemory)
    return unusable(true, name + " has " + std::to_string(properties.sharedMemPerBlockOptin >> 10) +
                              " KiB of shared memory for a block, but the kernels need " +
                              std::to_string(kLeastBlockMemory >> 10));
  return {.is_usable = true, .is_there = true, .reason = ""};
}

}  // namespace quire::ops
