#pragma once
// Matrices of 8 x 8 elements, two in each lane: those at columns c and c + 1 of row r, with
// r = (lane / 4 & 4) + lane / 2 % 4 and c = (lane / 4 & 2) * 2 + lane % 2 * 2. Apple does not state
// this map; MLX's kernels rely on it.
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

  static uint32_t row_of(uint32_t lane) { return (lane / 4 & 4) + lane / 2 % 4; }
  static uint32_t column_of(uint32_t lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }
  static uint32_t lane_of(uint32_t row, uint32_t column) {
    return (row & 4) * 4 + (column & 4) * 2 + row % 4 * 2 + column / 2 % 2;
  }

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

// d = a b + c; each sum begins with c's element and takes the products in ascending order.
template <class D, class A, class B, class C>
void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                   const simdgroup_matrix<B, 8, 8>& b,
                                   const simdgroup_matrix<C, 8, 8>& c,
                                   Place at = Place::current()) {
  struct Pair {
    vec<float, 2> a, b;
  };
  const Pair own = {{static_cast<float>(a.elements[0]), static_cast<float>(a.elements[1])},
                    {static_cast<float>(b.elements[0]), static_cast<float>(b.elements[1])}};
  const LaneValues<Pair> values("simdgroup_multiply_accumulate", own, at);
  using M = simdgroup_matrix<D, 8, 8>;
  const uint32_t row = M::row_of(values.own()), column = M::column_of(values.own());
  float sums[2] = {static_cast<float>(c.elements[0]), static_cast<float>(c.elements[1])};
  for (uint32_t k = 0; k < 8; ++k) {
    const float left = values[M::lane_of(row, k)].a[k % 2];
    const vec<float, 2> right = values[M::lane_of(k, column)].b;
    sums[0] = __builtin_fmaf(left, right[0], sums[0]);
    sums[1] = __builtin_fmaf(left, right[1], sums[1]);
  }
  d.elements = {static_cast<D>(sums[0]), static_cast<D>(sums[1])};
}
template <class D, class A, class B>
void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                        const simdgroup_matrix<B, 8, 8>& b, Place at = Place::current()) {
  simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<float, 8>(0.0f), at);
}

}  // namespace metal
