#pragma once
#include "ops/cuda/launch.cuh"
#include "ops/linear/cuda/linear_cuda_choice.h"
#include "ops/linear/cuda/linear_task.cuh"
#include "ops/linear/cuda/linear_weight.cuh"

namespace quire::ops {

// 16-bit x. Up to 32 rows a block; weights go from memory to registers.
template <class T>
void run_few_rows(CudaStream stream, const LinearCudaParams& params);

// 16-bit x, any number of rows.
void run_many_rows(CudaStream stream, const LinearCudaParams& params);

// Both of these for matrices in blocks.
template <class T>
void run_block_rows(CudaStream stream, const LinearCudaParams& params, LinearCudaKernel kernel);

// The same on Hopper, of rows that begin at multiples of 16 bytes (linear_wgmma_sm90_cuda.cu).
void run_wgmma(CudaStream stream, const LinearCudaParams& params);
template <class T>
void run_block_wgmma(CudaStream stream, const LinearCudaParams& params);

}  // namespace quire::ops
