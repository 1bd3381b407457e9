#include "ops/linear/cuda/linear_block_rows.cuh"

namespace quire::ops {

template void run_block_rows<DeviceBf16>(CudaStream stream, const LinearCudaParams& params,
                                         LinearCudaKernel kernel);

}  // namespace quire::ops
