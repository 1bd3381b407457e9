#include "matrix.h"

#include <cstring>

#include "threads.h"

namespace quire::emulator {
namespace {

// The processor's own fused multiply-add, where it has one: a call is slow, and there are 512.
#ifdef __x86_64__
__attribute__((target_clones("arch=x86-64-v3", "default")))
#endif
void multiply(const float (&a)[8][8], const float (&b)[8][8], float (&c)[8][8]) {
  for (int row = 0; row < 8; ++row)
    for (int k = 0; k < 8; ++k)
      for (int column = 0; column < 8; ++column)
        c[row][column] = __builtin_fmaf(a[row][k], b[k][column], c[row][column]);
}

}  // namespace

void multiply_matrices(char* slots, uint32_t) {
  float a[8][8], b[8][8], c[8][8];
  const auto each_lane = [&](auto body) {
    for (uint32_t lane = 0; lane < kSimdWidth; ++lane) {
      const uint32_t row = matrix_row_of(lane), column = matrix_column_of(lane);
      body(slots + lane * kSlotBytes, &a[row][column], &b[row][column], &c[row][column]);
    }
  };
  constexpr size_t kBytes = sizeof(MatrixSlot::a);
  each_lane([](const char* slot, float* of_a, float* of_b, float* of_c) {
    std::memcpy(of_a, slot + offsetof(MatrixSlot, a), kBytes);
    std::memcpy(of_b, slot + offsetof(MatrixSlot, b), kBytes);
    std::memcpy(of_c, slot + offsetof(MatrixSlot, c), kBytes);
  });
  multiply(a, b, c);
  each_lane([](char* slot, float*, float*, const float* of_c) {
    std::memcpy(slot + offsetof(MatrixSlot, c), of_c, kBytes);
  });
}

}  // namespace quire::emulator
