#pragma once
// In place of MLX's file, whose overloads differ in address spaces alone, and so would be one for
// the emulator. No kernel of the calibration computes with complex numbers.
template <class T>
struct complex_t {
  using value_type = T;
  constexpr complex_t(T r, T i) : real(r), imag(i) {}
  T real, imag;
};
using complex64_t = complex_t<float>;
