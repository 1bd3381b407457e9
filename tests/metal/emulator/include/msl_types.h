#pragma once
// Metal's scalar and vector types as clang has them.
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#define METAL_FUNC inline
#define __METAL_VERSION__ 320

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using half = _Float16;
using bfloat = __bf16;

constexpr half operator""h(long double x) { return static_cast<half>(x); }
constexpr bfloat operator"" bf(long double x) { return static_cast<bfloat>(static_cast<float>(x)); }

namespace metal {

template <class T>
using uniform = T;
template <class T>
constexpr T make_uniform(T x) {
  return x;
}
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
// Vectors that lie at any address that suits their elements.
#ifdef QUIRE_METAL_TYPES  // methods cannot be called on objects in an address space
template <class T, int N>
using packed_vec = vec<T, N>;
#else
template <class T, int N>
struct packed_vec {
  T elements[N];
  packed_vec() = default;
  packed_vec(vec<T, N> v) {
    for (int i = 0; i < N; ++i) elements[i] = v[i];
  }
  operator vec<T, N>() const {
    vec<T, N> v;
    for (int i = 0; i < N; ++i) v[i] = elements[i];
    return v;
  }
  T& operator[](int i) { return elements[i]; }
  const T& operator[](int i) const { return elements[i]; }
};
#endif

template <class T>
struct numeric_limits : std::numeric_limits<T> {};
template <>
struct numeric_limits<half> {
  static constexpr half max() { return static_cast<half>(65504.0f); }
  static constexpr half lowest() { return static_cast<half>(-65504.0f); }
  static constexpr half min() { return static_cast<half>(0x1p-14f); }
  static constexpr half infinity() { return static_cast<half>(__builtin_inff()); }
};
template <>
struct numeric_limits<bfloat> {
  static constexpr bfloat max() { return static_cast<bfloat>(0x1.fep127f); }
  static constexpr bfloat lowest() { return static_cast<bfloat>(-0x1.fep127f); }
  static constexpr bfloat min() { return static_cast<bfloat>(0x1p-126f); }
  static constexpr bfloat infinity() { return static_cast<bfloat>(__builtin_inff()); }
};

using std::bool_constant;
using std::conditional_t;
using std::enable_if;
using std::enable_if_t;
using std::false_type;
using std::integral_constant;
using std::is_convertible_v;
using std::is_pointer;
using std::is_reference;
using std::is_same;
using std::is_same_v;
using std::is_unsigned;
using std::is_unsigned_v;
using std::make_unsigned_t;
using std::remove_const_t;
using std::remove_cv;
using std::remove_cv_t;
using std::remove_pointer;
using std::remove_reference;
using std::true_type;
using std::void_t;
template <class T>
using remove_addrspace_t = std::remove_cv_t<T>;
using std::is_const;
using std::is_const_v;
using std::is_floating_point;
using std::is_integral;
using std::is_integral_v;
using std::is_void;
template <class T>
inline constexpr bool is_floating_point_v =
    std::is_floating_point_v<T> || std::is_same_v<T, half> || std::is_same_v<T, bfloat>;

}  // namespace metal

#define QUIRE_VECTORS(type)            \
  using type##2 = metal::vec<type, 2>; \
  using type##3 = metal::vec<type, 3>; \
  using type##4 = metal::vec<type, 4>;
QUIRE_VECTORS(char)
QUIRE_VECTORS(uchar)
QUIRE_VECTORS(short)
QUIRE_VECTORS(ushort)
QUIRE_VECTORS(int)
QUIRE_VECTORS(uint)
QUIRE_VECTORS(long)
QUIRE_VECTORS(ulong)
QUIRE_VECTORS(half)
QUIRE_VECTORS(bfloat)
QUIRE_VECTORS(float)
#undef QUIRE_VECTORS
#define QUIRE_PACKED(type)                             \
  using packed_##type##2 = metal::packed_vec<type, 2>; \
  using packed_##type##3 = metal::packed_vec<type, 3>; \
  using packed_##type##4 = metal::packed_vec<type, 4>;
QUIRE_PACKED(half)
QUIRE_PACKED(bfloat)
QUIRE_PACKED(float)
QUIRE_PACKED(uint)
QUIRE_PACKED(uchar)
#undef QUIRE_PACKED

namespace quire::emulator {
template <class T>
inline constexpr int kElements = 1;
template <class T, int N>
inline constexpr int kElements<T __attribute__((ext_vector_type(N)))> = N;

// V(a, b, ...) of vectors and numbers, one after the other; of one number, in all elements.
template <class V, class... Args>
constexpr V make_vector(Args... args) {
  V result{};
  if constexpr (sizeof...(Args) == 1 && (kElements<Args> + ...) == 1) {
    for (int i = 0; i < kElements<V>; ++i) ((result[i] = args), ...);
  } else {
    static_assert((kElements<Args> + ...) == kElements<V>);
    int at = 0;
    const auto put = [&](auto arg) {
      if constexpr (kElements<decltype(arg)> == 1) {
        result[at++] = arg;
      } else {
        for (int i = 0; i < kElements<decltype(arg)>; ++i) result[at++] = arg[i];
      }
    };
    (put(args), ...);
  }
  return result;
}
}  // namespace quire::emulator

template <class To, class From>
constexpr To as_type(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

namespace metal {
using ::as_type;
}
