#pragma once
#include <cstdint>

// Matrices of 8 x 8 elements, two in each lane: those at columns c and c + 1 of row r. Apple does
// not state this map; MLX's kernels rely on it.
namespace quire::emulator {

inline uint32_t matrix_row_of(uint32_t lane) { return (lane / 4 & 4) + lane / 2 % 4; }
inline uint32_t matrix_column_of(uint32_t lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }

// What a lane gives to a product: its elements of a, b and c.
struct MatrixSlot {
  float a[2], b[2], c[2];
};
// Of all lanes' slots: c becomes a b + c. Each sum begins with c's element and takes the products
// in ascending order.
void multiply_matrices(char* slots, uint32_t present);

}  // namespace quire::emulator
