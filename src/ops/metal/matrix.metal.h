#pragma once
#include "ops/metal/kernel.metal.h"

// Where a lane's two elements of an 8 x 8 matrix are: row_of_lane, and columns 2 * pair_of_lane and
// the next. Apple does not state it; all GPUs that run MLX's kernels have it so.
namespace quire {

inline int row_of_lane(int lane) { return (lane / 4 & 4) + lane / 2 % 4; }
inline int pair_of_lane(int lane) { return (lane / 4 & 2) + lane % 2; }

// Four neighbouring elements in float32; zeros where there are none.
template <typename T>
inline float4 load_four(const device T* from, bool exists) {
  if (!exists) return float4(0.0f);
  const metal::vec<T, 4> four = *(const device metal::vec<T, 4>*)from;
  return float4{float(four[0]), float(four[1]), float(four[2]), float(four[3])};
}

}  // namespace quire
