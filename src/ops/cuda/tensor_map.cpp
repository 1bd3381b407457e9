#include "ops/cuda/tensor_map.h"

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace quire::ops {
namespace {

// The driver's own function: the programs do not link the driver.
decltype(&cuTensorMapEncodeTiled) encoder() {
  static const auto encode = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                               12000, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr)
      throw std::runtime_error("the NVIDIA driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  return encode;
}

}  // namespace

CUtensorMap tensor_map(const TileSource& source) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(source.columns),
                              static_cast<cuuint64_t>(source.rows)};
  const cuuint64_t pitches[] = {static_cast<cuuint64_t>(source.pitch)};
  const cuuint32_t tile[] = {static_cast<cuuint32_t>(source.tile_columns),
                             static_cast<cuuint32_t>(source.tile_rows)};
  const cuuint32_t steps[] = {1, 1};
  CUtensorMap map;
  const CUresult result =
      encoder()(&map, source.type, 2, const_cast<void*>(source.data), sizes, pitches, tile, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE,
                source.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw std::runtime_error("cuTensorMapEncodeTiled: error " + std::to_string(result) + " for " +
                             std::to_string(source.rows) + " x " + std::to_string(source.columns));
  return map;
}

}  // namespace quire::ops
