#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire_kernels {

// pool[slots[i]] = rows[i], `row_bytes` each, for n rows; a negative slot: the row is left out.
void write_rows(const void* rows, void* pool, const int64_t* slots, int64_t n, int64_t row_bytes);

struct Rotation {
  quire::ops::FloatType type;  // of everything
  const void* cos = nullptr;   // [S, width / 2]
  const void* sin = nullptr;
  int64_t width = 0;  // dimensions that rotate; the others are copied
  bool interleaved = false;
};
// x and out [n, heads, dim]; row i is at positions[i]. In float32, rounded once.
void rotate_rows(const void* x, void* out, const int64_t* positions, int64_t n, int64_t heads,
                 int64_t dim, const Rotation& rotation);

}  // namespace quire_kernels
