#pragma once
#include <string>

namespace quire::ops {

// Whether the kernels of this build can run on an NVIDIA GPU of this machine.
struct CudaSupport {
  bool is_usable = false;
  bool is_there = false;  // a driver, or a GPU, which may be of no use to us
  std::string reason;     // why it is not usable: the end of a sentence
};

// Asks the driver, if there is one; takes nothing on the GPU. Throws LoadError if
// QUIRE_CUDA_KERNELS asks for kernels that nobody knows.
CudaSupport find_cuda_support();

}  // namespace quire::ops
