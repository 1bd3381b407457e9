#include "ops/linear/cuda/linear_wgmma.cuh"

namespace quire::ops {
namespace {

template <class T>
void run_wgmma_as(CudaStream stream, const LinearCudaParams& p) {
  if (is_in_blocks(p.layout.block_source)) return run_block_wgmma<T>(stream, p);
  if (p.layout.bits == 0) return wgmma::run<T, CudaSource::kDense>(stream, p);
  p.layout.bits == 4 ? wgmma::run<T, CudaSource::kAffine4>(stream, p)
                     : wgmma::run<T, CudaSource::kAffine8>(stream, p);
}

}  // namespace

void run_wgmma(CudaStream stream, const LinearCudaParams& p) {
  p.layout.type == FloatType::kBf16 ? run_wgmma_as<DeviceBf16>(stream, p)
                                    : run_wgmma_as<DeviceF16>(stream, p);
}

}  // namespace quire::ops
