#include "ops/linear/cuda/linear_block_wgmma.cuh"

namespace quire::ops {

template void run_block_wgmma<DeviceBf16>(CudaStream stream, const LinearCudaParams& params);

}  // namespace quire::ops
