// What clang calls to round a float to bfloat on processors without an instruction for it; older
// libraries of gcc do not have it. To nearest, ties to even.
#include <cstdint>

extern "C" __attribute__((weak)) __bf16 __truncsfbf2(float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = x != x ? bits | 0x400000u : bits + 0x7FFFu + (bits >> 16 & 1);
  return __builtin_bit_cast(__bf16, static_cast<uint16_t>(rounded >> 16));
}
