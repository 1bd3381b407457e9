#pragma once

// The one CUDA type that launch functions of kernels need, without CUDA's headers.
struct CUstream_st;

namespace quire::ops {

using CudaStream = CUstream_st*;

}  // namespace quire::ops
