#pragma once
#include "ops/cuda/floats.cuh"

namespace quire::ops {

// Element i of a rotated head whose elements are `at(i)`: pairs (i, i + half) turn by an angle, the
// rest stays. `cos_sin` is the position's row of the table: [2][half].
template <class At>
__device__ inline float rotated(int64_t i, int64_t half, const float* cos_sin, At at) {
  if (i >= 2 * half) return at(i);
  const int64_t pair = i < half ? i : i - half;
  const float a = at(pair), b = at(pair + half), cos = cos_sin[pair], sin = cos_sin[half + pair];
  return i < half ? fmaf(-b, sin, a * cos) : fmaf(a, sin, b * cos);
}

}  // namespace quire::ops
