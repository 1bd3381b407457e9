#include "ops/linear/cuda/linear_few_rows.cuh"

namespace quire::ops {

template void run_few_rows<DeviceF16>(CudaStream stream, const LinearCudaParams& params);

}  // namespace quire::ops
