// What compute-sanitizer must find, or else its silence about the kernels means nothing.
#include "harness.h"

namespace quire::ops::cuda_test {
namespace {

// The last thread writes behind the end.
__global__ void overrun(int* to, int count) {
  if (threadIdx.x <= count) to[threadIdx.x == count ? 4 * count : threadIdx.x] = 1;
}

// Threads read what others write, with no barrier between.
__global__ void race(int* to) {
  __shared__ volatile int shared[64];
  shared[threadIdx.x] = static_cast<int>(threadIdx.x);
  to[threadIdx.x] = shared[63 - threadIdx.x];
}

// Half a warp comes to a barrier of all threads, the other half does not.
__global__ void divergence(int* to) {
  if (threadIdx.x < 16) __syncthreads();
  to[threadIdx.x] = 1;
}

}  // namespace

void plant_overrun(CudaStream stream) {
  const DeviceBytes to(64 * sizeof(int));
  overrun<<<1, 96, 0, stream>>>(to.as<int>(), 64);
  cudaStreamSynchronize(stream);
}
void plant_race(CudaStream stream) {
  const DeviceBytes to(64 * sizeof(int));
  race<<<1, 64, 0, stream>>>(to.as<int>());
  cudaStreamSynchronize(stream);
}
void plant_divergence(CudaStream stream) {
  const DeviceBytes to(64 * sizeof(int));
  divergence<<<1, 32, 0, stream>>>(to.as<int>());
  cudaStreamSynchronize(stream);
}

}  // namespace quire::ops::cuda_test
