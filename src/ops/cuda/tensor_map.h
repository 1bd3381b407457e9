#pragma once
#include <cuda.h>

#include <cstdint>

namespace quire::ops {

// A matrix in memory of the device, for copies of tiles (hopper.cuh): [rows, columns] of `type`,
// rows `pitch` bytes apart, a multiple of 16; `data` is aligned to 16. Tiles are
// [tile_rows, tile_columns]; what of a tile lies outside is zeros.
struct TileSource {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_UINT32;
  const void* data = nullptr;
  int64_t rows = 0, columns = 0, pitch = 0;
  int tile_rows = 0, tile_columns = 0;  // at most 256
  bool swizzled = false;                // 128 bytes a row of a tile, in the 128-byte swizzle
};

// What a kernel is given for it. Throws std::runtime_error if the driver takes no such matrix.
CUtensorMap tensor_map(const TileSource& source);

}  // namespace quire::ops
