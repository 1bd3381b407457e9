#pragma once
// Matrices of 8 x 8 elements.
#include "matrix.h"
#include "msl_simd.h"

namespace metal {

template <class T, int kRows, int kColumns>
struct simdgroup_matrix {
  static_assert(kRows == 8 && kColumns == 8);
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {
    const Place at = Place::current();
    const uint32_t lane = LaneValues<bool>("simdgroup_matrix", true, at).own();
    const uint32_t row = row_of(lane), column = column_of(lane);
    elements = {row == column ? diagonal : T(0), row == column + 1 ? diagonal : T(0)};
  }
  vec<T, 2>& thread_elements() { return elements; }
  const vec<T, 2>& thread_elements() const { return elements; }

  static uint32_t row_of(uint32_t lane) { return quire::emulator::matrix_row_of(lane); }
  static uint32_t column_of(uint32_t lane) { return quire::emulator::matrix_column_of(lane); }

  vec<T, 2> elements;
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int kRows, int kColumns = kRows>
simdgroup_matrix<T, kRows, kColumns> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, kRows, kColumns> matrix;
  matrix.elements = {value, value};
  return matrix;
}

template <class T, class U>
void simdgroup_load(simdgroup_matrix<T, 8, 8>& to, const U* from, ulong elements_per_row = 8,
                    ulong2 origin = {0, 0}, bool transpose = false, Place at = Place::current()) {
  using M = simdgroup_matrix<T, 8, 8>;
  const uint32_t lane = LaneValues<bool>("simdgroup_load", true, at).own();
  from += origin.y * elements_per_row + origin.x;
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t row = M::row_of(lane), column = M::column_of(lane) + i;
    to.elements[i] =
        transpose ? from[column * elements_per_row + row] : from[row * elements_per_row + column];
  }
}
template <class T, class U>
void simdgroup_store(const simdgroup_matrix<T, 8, 8>& from, U* to, ulong elements_per_row = 8,
                     ulong2 origin = {0, 0}, bool transpose = false, Place at = Place::current()) {
  using M = simdgroup_matrix<T, 8, 8>;
  const uint32_t lane = LaneValues<bool>("simdgroup_store", true, at).own();
  to += origin.y * elements_per_row + origin.x;
  for (uint32_t i = 0; i < 2; ++i) {
    const uint32_t row = M::row_of(lane), column = M::column_of(lane) + i;
    (transpose ? to[column * elements_per_row + row] : to[row * elements_per_row + column]) =
        from.elements[i];
  }
}

// d = a b + c
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                   const simdgroup_matrix<B, 8, 8>& b,
                                   const simdgroup_matrix<C, 8, 8>& c,
                                   Place at = Place::current()) {
  using quire::emulator::MatrixSlot;
  const MatrixSlot own = {
      .a = {static_cast<float>(a.elements[0]), static_cast<float>(a.elements[1])},
      .b = {static_cast<float>(b.elements[0]), static_cast<float>(b.elements[1])},
      .c = {static_cast<float>(c.elements[0]), static_cast<float>(c.elements[1])}};
  const LaneValues<MatrixSlot> values("simdgroup_multiply_accumulate", own, at,
                                      quire::emulator::multiply_matrices);
  for (uint32_t lane = 0; lane < kSimdWidth; ++lane) values.lanes.slot(lane);  // all take part
  const MatrixSlot sums = values[values.own()];
  d.elements = {static_cast<D>(sums.c[0]), static_cast<D>(sums.c[1])};
}
template <class D, class A, class B>
void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                        const simdgroup_matrix<B, 8, 8>& b, Place at = Place::current()) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<float, 8>(0.0f), at);
}

}  // namespace metal
