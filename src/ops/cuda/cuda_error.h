#pragma once
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace quire::ops {

// Throws std::runtime_error, naming what was tried, unless a call of the run time worked.
inline void check_cuda(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // an error that is not sticky must not be taken for the next call's
  throw std::runtime_error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(result));
}

}  // namespace quire::ops
