#include "ops/cuda/cuda_traits.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "ops/cuda/cuda_error.h"

namespace quire::ops {
namespace {

constexpr int kHopper = 9;

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, name, device), "the GPU cannot be asked");
  return value;
}

bool is_plain(const char* kernels) { return kernels && std::string_view(kernels) == "plain"; }

}  // namespace

const char* asked_cuda_kernels() { return std::getenv("QUIRE_CUDA_KERNELS"); }

bool knows_cuda_kernels(const char* kernels) {
  return !kernels || *kernels == '\0' || is_plain(kernels);
}

CudaTraits make_cuda_traits(int generation, size_t block_memory, const char* kernels) {
  const bool plain = is_plain(kernels);
  const size_t memory = plain ? std::min(block_memory, kLeastBlockMemory) : block_memory;
  return {.is_hopper = generation == kHopper && !plain,
          .block_memory = memory - std::min(memory, kFixedBlockMemory)};
}

const CudaTraits& cuda_traits() {
  static const CudaTraits traits = [] {
    int device = 0;
    check_cuda(cudaGetDevice(&device), "the GPU cannot be asked");
    return make_cuda_traits(
        attribute(cudaDevAttrComputeCapabilityMajor, device),
        static_cast<size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device)),
        asked_cuda_kernels());
  }();
  return traits;
}

}  // namespace quire::ops
