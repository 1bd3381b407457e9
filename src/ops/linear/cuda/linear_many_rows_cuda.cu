#include "ops/linear/cuda/linear_many_rows.cuh"

namespace quire::ops {

void run_many_rows(CudaStream stream, const LinearCudaParams& p) {
  p.layout.type == FloatType::kBf16 ? run_many_rows_as<DeviceBf16>(stream, p)
                                    : run_many_rows_as<DeviceF16>(stream, p);
}

}  // namespace quire::ops
