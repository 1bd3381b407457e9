#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

// Vectors of four floats for the portable baseline, by the compiler's own vector types (SSE2 on
// x86-64), under the names of Highway, whose baseline has one lane there. What kernels that define
// QUIRE_FOUR_LANES need, and no more: see highway.h. Meaning is Highway's; multiply-adds are not
// fused, as its baseline's are not.
namespace quire::ops::four_lanes {

#define QUIRE_LANES inline __attribute__((always_inline))

template <class T, size_t N>
struct Tag {
  using Lane = T;
  static constexpr size_t kCount = N;
};
template <class T, size_t N>
struct Vector {
  typedef T Raw __attribute__((vector_size(sizeof(T) * N)));
  typedef T Loose __attribute__((vector_size(sizeof(T) * N), may_alias, aligned(alignof(T))));
  Raw raw;
};
// Lanes of ones or zeros.
template <class T, size_t N>
struct Mask {
  decltype(typename Vector<T, N>::Raw() < typename Vector<T, N>::Raw()) raw;
};

template <class T, size_t kMost>
using CappedTag = Tag<T, 16 / sizeof(T)>;
template <class T, class D>
using Rebind = Tag<T, D::kCount>;
template <class T, class D>
using Repartition = Tag<T, D::kCount * sizeof(typename D::Lane) / sizeof(T)>;
template <class D>
using Half = Tag<typename D::Lane, D::kCount / 2>;
template <class D>
using Vec = Vector<typename D::Lane, D::kCount>;
template <class D>
constexpr size_t MaxLanes(D) {
  return D::kCount;
}

template <class T, size_t N, class V>
QUIRE_LANES Vec<Tag<T, N>> Set(Tag<T, N>, V value) {
  return {typename Vec<Tag<T, N>>::Raw{} + static_cast<T>(value)};
}
template <class D>
QUIRE_LANES Vec<D> Zero(D) {
  return {typename Vec<D>::Raw{}};
}
template <class D>
QUIRE_LANES Vec<D> LoadU(D, const typename D::Lane* from) {
  return {*reinterpret_cast<const typename Vec<D>::Loose*>(from)};
}
// HWY_ALIGN aligns nothing for the baseline.
template <class D>
QUIRE_LANES Vec<D> Load(D d, const typename D::Lane* from) {
  return LoadU(d, from);
}
// The same 16 bytes in each block: there is one.
template <class D>
QUIRE_LANES Vec<D> LoadDup128(D d, const typename D::Lane* from) {
  return LoadU(d, from);
}
template <class D>
QUIRE_LANES void StoreU(Vec<D> v, D, typename D::Lane* to) {
  *reinterpret_cast<typename Vec<D>::Loose*>(to) = v.raw;
}
template <class D>
QUIRE_LANES void Store(Vec<D> v, D d, typename D::Lane* to) {
  StoreU(v, d, to);
}
template <class D, class V>
QUIRE_LANES Vec<D> BitCast(D, V v) {
  return {reinterpret_cast<typename Vec<D>::Raw>(v.raw)};
}

template <class T, size_t N>
QUIRE_LANES Vector<T, N> Add(Vector<T, N> a, Vector<T, N> b) {
  return {a.raw + b.raw};
}
template <class T, size_t N>
QUIRE_LANES Vector<T, N> Sub(Vector<T, N> a, Vector<T, N> b) {
  return {a.raw - b.raw};
}
template <class T, size_t N>
QUIRE_LANES Vector<T, N> Mul(Vector<T, N> a, Vector<T, N> b) {
  return {a.raw * b.raw};
}
template <class T, size_t N>
QUIRE_LANES Vector<T, N> Div(Vector<T, N> a, Vector<T, N> b) {
  return {a.raw / b.raw};
}
template <class T, size_t N>
QUIRE_LANES Vector<T, N> Neg(Vector<T, N> a) {
  return {-a.raw};
}
template <class V>
QUIRE_LANES V MulAdd(V a, V b, V c) {
  return Add(Mul(a, b), c);
}
template <class V>
QUIRE_LANES V NegMulAdd(V a, V b, V c) {
  return Sub(c, Mul(a, b));
}
template <class V>
QUIRE_LANES V NegMulSub(V a, V b, V c) {
  return Sub(Neg(Mul(a, b)), c);
}

template <class T, size_t N>
QUIRE_LANES Mask<T, N> Eq(Vector<T, N> a, Vector<T, N> b) {
  return {a.raw == b.raw};
}
template <class T, size_t N>
QUIRE_LANES Mask<T, N> Ne(Vector<T, N> a, Vector<T, N> b) {
  return {a.raw != b.raw};
}
template <class T, size_t N>
QUIRE_LANES Mask<T, N> Lt(Vector<T, N> a, Vector<T, N> b) {
  return {a.raw < b.raw};
}
template <class T, size_t N>
QUIRE_LANES Mask<T, N> Le(Vector<T, N> a, Vector<T, N> b) {
  return {a.raw <= b.raw};
}
template <class T, size_t N>
QUIRE_LANES Mask<T, N> Gt(Vector<T, N> a, Vector<T, N> b) {
  return {a.raw > b.raw};
}
template <class T, size_t N>
QUIRE_LANES Mask<T, N> Ge(Vector<T, N> a, Vector<T, N> b) {
  return {a.raw >= b.raw};
}
template <class T, size_t N>
QUIRE_LANES Mask<T, N> And(Mask<T, N> a, Mask<T, N> b) {
  return {a.raw & b.raw};
}
template <class T, size_t N>
QUIRE_LANES Mask<T, N> Or(Mask<T, N> a, Mask<T, N> b) {
  return {a.raw | b.raw};
}
template <class D, class T, size_t N>
QUIRE_LANES Mask<typename D::Lane, N> RebindMask(D, Mask<T, N> mask) {
  return {mask.raw};
}
template <class D, class T, size_t N>
QUIRE_LANES bool AllTrue(D, Mask<T, N> mask) {
  bool all = true;
  for (size_t i = 0; i < N; ++i) all &= mask.raw[i] != 0;
  return all;
}
template <class T, size_t N>
QUIRE_LANES Vector<T, N> IfThenElse(Mask<T, N> mask, Vector<T, N> yes, Vector<T, N> no) {
  return {mask.raw ? yes.raw : no.raw};
}
// Of what is no number, the second.
template <class V>
QUIRE_LANES V Min(V a, V b) {
  return IfThenElse(Lt(a, b), a, b);
}
template <class V>
QUIRE_LANES V Max(V a, V b) {
  return IfThenElse(Gt(a, b), a, b);
}

// Bits, of floats too.
template <class T, size_t N>
using Bits = Vector<uint8_t, N * sizeof(T)>;
template <class T, size_t N>
QUIRE_LANES Vector<T, N> And(Vector<T, N> a, Vector<T, N> b) {
  using Raw = typename Bits<T, N>::Raw;
  return {reinterpret_cast<typename Vector<T, N>::Raw>(reinterpret_cast<Raw>(a.raw) &
                                                       reinterpret_cast<Raw>(b.raw))};
}
template <class T, size_t N>
QUIRE_LANES Vector<T, N> Or(Vector<T, N> a, Vector<T, N> b) {
  using Raw = typename Bits<T, N>::Raw;
  return {reinterpret_cast<typename Vector<T, N>::Raw>(reinterpret_cast<Raw>(a.raw) |
                                                       reinterpret_cast<Raw>(b.raw))};
}
QUIRE_LANES Vector<float, 4> Abs(Vector<float, 4> v) {
  using Tag = Tag<uint32_t, 4>;
  const auto size = And(BitCast(Tag(), v), Set(Tag(), 0x7FFFFFFFu));
  return BitCast(four_lanes::Tag<float, 4>(), size);
}
QUIRE_LANES Vector<float, 4> CopySign(Vector<float, 4> magnitude, Vector<float, 4> sign) {
  using Tag = Tag<uint32_t, 4>;
  const auto bit = And(BitCast(Tag(), sign), Set(Tag(), 0x80000000u));
  return BitCast(four_lanes::Tag<float, 4>(), Or(BitCast(Tag(), Abs(magnitude)), bit));
}
template <int kBits, class T, size_t N>
QUIRE_LANES Vector<T, N> ShiftLeft(Vector<T, N> v) {
  return {v.raw << kBits};
}
template <int kBits, class T, size_t N>
QUIRE_LANES Vector<T, N> ShiftRight(Vector<T, N> v) {
  return {v.raw >> kBits};
}
template <class T, size_t N>
QUIRE_LANES Vector<T, N> ShiftRightSame(Vector<T, N> v, int bits) {
  return {v.raw >> static_cast<T>(bits)};
}
template <class T, size_t N>
QUIRE_LANES Vector<T, N> ShiftLeftSame(Vector<T, N> v, int bits) {
  return {v.raw << static_cast<T>(bits)};
}

// int32 and float.
QUIRE_LANES Vector<float, 4> ConvertTo(Tag<float, 4>, Vector<int32_t, 4> v) {
  return {__builtin_convertvector(v.raw, Vector<float, 4>::Raw)};
}
// Integers of more bits, or of fewer that hold the value.
template <class D, class T, size_t N>
QUIRE_LANES Vec<D> PromoteTo(D, Vector<T, N> v) {
  return {__builtin_convertvector(v.raw, typename Vec<D>::Raw)};
}
template <class D, class T, size_t N>
QUIRE_LANES Vec<D> DemoteTo(D, Vector<T, N> v) {
  return {__builtin_convertvector(v.raw, typename Vec<D>::Raw)};
}

template <size_t N>
QUIRE_LANES Vector<uint8_t, N> InterleaveLower(Tag<uint8_t, N>, Vector<uint8_t, N> a,
                                               Vector<uint8_t, N> b) {
  return {__builtin_shufflevector(a.raw, b.raw, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7,
                                  23)};
}
template <size_t N>
QUIRE_LANES Vector<uint8_t, N> InterleaveUpper(Tag<uint8_t, N>, Vector<uint8_t, N> a,
                                               Vector<uint8_t, N> b) {
  return {__builtin_shufflevector(a.raw, b.raw, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
                                  30, 15, 31)};
}
template <size_t N>
QUIRE_LANES Vector<uint16_t, N> InterleaveLower(Tag<uint16_t, N>, Vector<uint16_t, N> a,
                                                Vector<uint16_t, N> b) {
  return {__builtin_shufflevector(a.raw, b.raw, 0, 8, 1, 9, 2, 10, 3, 11)};
}
template <size_t N>
QUIRE_LANES Vector<uint16_t, N> InterleaveUpper(Tag<uint16_t, N>, Vector<uint16_t, N> a,
                                                Vector<uint16_t, N> b) {
  return {__builtin_shufflevector(a.raw, b.raw, 4, 12, 5, 13, 6, 14, 7, 15)};
}
template <class T>
QUIRE_LANES Vector<T, 4> InterleaveLower(Tag<T, 4>, Vector<T, 4> a, Vector<T, 4> b) {
  return {__builtin_shufflevector(a.raw, b.raw, 0, 4, 1, 5)};
}
template <class T>
QUIRE_LANES Vector<T, 4> InterleaveUpper(Tag<T, 4>, Vector<T, 4> a, Vector<T, 4> b) {
  return {__builtin_shufflevector(a.raw, b.raw, 2, 6, 3, 7)};
}
template <class T>
QUIRE_LANES Vector<T, 2> InterleaveLower(Tag<T, 2>, Vector<T, 2> a, Vector<T, 2> b) {
  return {__builtin_shufflevector(a.raw, b.raw, 0, 2)};
}
template <class T>
QUIRE_LANES Vector<T, 2> InterleaveUpper(Tag<T, 2>, Vector<T, 2> a, Vector<T, 2> b) {
  return {__builtin_shufflevector(a.raw, b.raw, 1, 3)};
}
// Every second of eight: from the first on, and from the second.
template <class T>
QUIRE_LANES void LoadInterleaved2(Tag<T, 4> d, const T* from, Vector<T, 4>& first,
                                  Vector<T, 4>& second) {
  const Vector<T, 4> a = LoadU(d, from), b = LoadU(d, from + 4);
  first = {__builtin_shufflevector(a.raw, b.raw, 0, 2, 4, 6)};
  second = {__builtin_shufflevector(a.raw, b.raw, 1, 3, 5, 7)};
}
// Byte by byte: SSE2 has no such instruction. Indices are below 16.
QUIRE_LANES Vector<uint8_t, 16> TableLookupBytes(Vector<uint8_t, 16> table,
                                                 Vector<uint8_t, 16> index) {
  alignas(16) uint8_t of[16], at[16];
  const Tag<uint8_t, 16> d;
  StoreU(table, d, of);
  StoreU(index, d, at);
  uint64_t first = 0, last = 0;  // not by memory, which would wait for 16 stores
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    first |= static_cast<uint64_t>(of[at[i] & 15]) << (8 * i);
    last |= static_cast<uint64_t>(of[at[8 + i] & 15]) << (8 * i);
  }
  return BitCast(d, Vector<uint64_t, 2>{Vector<uint64_t, 2>::Raw{first, last}});
}
// The same, or 0 where the index's highest bit is set.
QUIRE_LANES Vector<uint8_t, 16> TableLookupBytesOr0(Vector<uint8_t, 16> table,
                                                    Vector<uint8_t, 16> index) {
  const Vector<uint8_t, 16> found = TableLookupBytes(table, index);
  const Mask<uint8_t, 16> is_zero = Ge(index, Set(Tag<uint8_t, 16>(), 128));
  return IfThenElse(is_zero, Zero(Tag<uint8_t, 16>()), found);
}

#undef QUIRE_LANES

}  // namespace quire::ops::four_lanes
