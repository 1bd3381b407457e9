#pragma once
// Metal's mathematical functions, each rounded once from the host's. Apple's may differ in the last
// bits, those of metal::fast by more.
#include <algorithm>
#include <bit>

#include "msl_types.h"

#define QUIRE_MATH_1(name, expression)              \
  inline float name(float x) { return expression; } \
  inline half name(half h) {                        \
    const float x = h;                              \
    return static_cast<half>(expression);           \
  }                                                 \
  template <int N>                                  \
  vec<float, N> name(vec<float, N> v) {             \
    for (int i = 0; i < N; ++i) {                   \
      const float x = v[i];                         \
      v[i] = expression;                            \
    }                                               \
    return v;                                       \
  }
#define QUIRE_MATH                         \
  QUIRE_MATH_1(exp, ::expf(x))             \
  QUIRE_MATH_1(exp2, ::exp2f(x))           \
  QUIRE_MATH_1(log, ::logf(x))             \
  QUIRE_MATH_1(log2, ::log2f(x))           \
  QUIRE_MATH_1(sin, ::sinf(x))             \
  QUIRE_MATH_1(cos, ::cosf(x))             \
  QUIRE_MATH_1(tanh, ::tanhf(x))           \
  QUIRE_MATH_1(sqrt, ::sqrtf(x))           \
  QUIRE_MATH_1(rsqrt, (1.0f / ::sqrtf(x))) \
  QUIRE_MATH_1(floor, ::floorf(x))         \
  QUIRE_MATH_1(ceil, ::ceilf(x))           \
  QUIRE_MATH_1(trunc, ::truncf(x))         \
  QUIRE_MATH_1(rint, ::nearbyintf(x))      \
  QUIRE_MATH_1(round, ::roundf(x))         \
  QUIRE_MATH_1(fabs, ::fabsf(x))

namespace metal {
QUIRE_MATH
namespace fast {
QUIRE_MATH
}
namespace precise {
QUIRE_MATH
}
#undef QUIRE_MATH
#undef QUIRE_MATH_1

inline float pow(float x, float y) { return ::powf(x, y); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
template <int N>
vec<float, N> fma(vec<float, N> a, vec<float, N> b, vec<float, N> c) {
  for (int i = 0; i < N; ++i) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
  return c;
}
inline float fmin(float a, float b) { return ::fminf(a, b); }
inline float fmax(float a, float b) { return ::fmaxf(a, b); }

template <class T>
T abs(T x) {
  if constexpr (is_floating_point_v<T>) return static_cast<T>(::fabsf(static_cast<float>(x)));
  return x < 0 ? static_cast<T>(-x) : x;
}
// Of floats: the other one, if one is NaN.
template <class T>
constexpr T max(T a, T b) {
  if constexpr (is_floating_point_v<T>) return a != a ? b : (b != b ? a : (a < b ? b : a));
  return a < b ? b : a;
}
template <class T>
constexpr T min(T a, T b) {
  if constexpr (is_floating_point_v<T>) return a != a ? b : (b != b ? a : (b < a ? b : a));
  return b < a ? b : a;
}
template <class T>
constexpr T clamp(T x, T low, T high) {
  return metal::min(metal::max(x, low), high);
}
template <class T>
constexpr T select(T if_false, T if_true, bool condition) {
  return condition ? if_true : if_false;
}
template <class T>
bool isnan(T x) {
  return x != x;
}
template <class T>
bool isinf(T x) {
  return ::fabsf(static_cast<float>(x)) == __builtin_inff();
}
template <class T>
bool isfinite(T x) {
  return ::fabsf(static_cast<float>(x)) < __builtin_inff();
}
template <class T, int N>
T dot(vec<T, N> a, vec<T, N> b) {
  T sum = a[0] * b[0];
  for (int i = 1; i < N; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
T popcount(T x) {
  return static_cast<T>(std::popcount(static_cast<std::make_unsigned_t<T>>(x)));
}
template <class T>
T clz(T x) {
  return static_cast<T>(std::countl_zero(static_cast<std::make_unsigned_t<T>>(x)));
}
template <class T>
T ctz(T x) {
  return static_cast<T>(std::countr_zero(static_cast<std::make_unsigned_t<T>>(x)));
}
inline uint mulhi(uint a, uint b) { return static_cast<uint>((ulong{a} * b) >> 32); }

}  // namespace metal

// What MLX's overloads for bfloat call: the compiler's own functions, with a flag for fast ones.
#define QUIRE_BUILTIN_1(name, call) \
  inline float __metal_##name(float x, bool) { return call; }
QUIRE_BUILTIN_1(fabs, ::fabsf(x))
QUIRE_BUILTIN_1(acos, ::acosf(x))
QUIRE_BUILTIN_1(acosh, ::acoshf(x))
QUIRE_BUILTIN_1(asin, ::asinf(x))
QUIRE_BUILTIN_1(asinh, ::asinhf(x))
QUIRE_BUILTIN_1(atan, ::atanf(x))
QUIRE_BUILTIN_1(atanh, ::atanhf(x))
QUIRE_BUILTIN_1(ceil, ::ceilf(x))
QUIRE_BUILTIN_1(cos, ::cosf(x))
QUIRE_BUILTIN_1(cosh, ::coshf(x))
QUIRE_BUILTIN_1(cospi, ::cosf(x * 3.14159265358979f))
QUIRE_BUILTIN_1(exp, ::expf(x))
QUIRE_BUILTIN_1(exp10, ::powf(10.0f, x))
QUIRE_BUILTIN_1(exp2, ::exp2f(x))
QUIRE_BUILTIN_1(floor, ::floorf(x))
QUIRE_BUILTIN_1(fract, x - ::floorf(x))
QUIRE_BUILTIN_1(log, ::logf(x))
QUIRE_BUILTIN_1(log10, ::log10f(x))
QUIRE_BUILTIN_1(log2, ::log2f(x))
QUIRE_BUILTIN_1(rint, ::nearbyintf(x))
QUIRE_BUILTIN_1(round, ::roundf(x))
QUIRE_BUILTIN_1(rsqrt, 1.0f / ::sqrtf(x))
QUIRE_BUILTIN_1(sin, ::sinf(x))
QUIRE_BUILTIN_1(sinh, ::sinhf(x))
QUIRE_BUILTIN_1(sinpi, ::sinf(x * 3.14159265358979f))
QUIRE_BUILTIN_1(sqrt, ::sqrtf(x))
QUIRE_BUILTIN_1(tan, ::tanf(x))
QUIRE_BUILTIN_1(tanh, ::tanhf(x))
QUIRE_BUILTIN_1(tanpi, ::tanf(x * 3.14159265358979f))
QUIRE_BUILTIN_1(trunc, ::truncf(x))
#undef QUIRE_BUILTIN_1
#define QUIRE_BUILTIN_2(name, call) \
  inline float __metal_##name(float x, float y, bool = false) { return call; }
QUIRE_BUILTIN_2(atan2, ::atan2f(x, y))
QUIRE_BUILTIN_2(divide, x / y)
QUIRE_BUILTIN_2(fmax, ::fmaxf(x, y))
QUIRE_BUILTIN_2(fmin, ::fminf(x, y))
QUIRE_BUILTIN_2(fmod, ::fmodf(x, y))
QUIRE_BUILTIN_2(pow, ::powf(x, y))
QUIRE_BUILTIN_2(powr, ::powf(x, y))
QUIRE_BUILTIN_2(nextafter, ::nextafterf(x, y))
#undef QUIRE_BUILTIN_2
inline float __metal_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __metal_fmax3(float a, float b, float c, bool) { return ::fmaxf(::fmaxf(a, b), c); }
inline float __metal_fmin3(float a, float b, float c, bool) { return ::fminf(::fminf(a, b), c); }
inline float __metal_fmedian3(float a, float b, float c, bool) {
  return ::fmaxf(::fminf(a, b), ::fminf(::fmaxf(a, b), c));
}
inline float __metal_frexp(float x, int* exponent, bool = false) { return ::frexpf(x, exponent); }
inline float __metal_ldexp(float x, int exponent, bool = false) { return ::ldexpf(x, exponent); }
inline int __metal_ilogb(float x, bool = false) { return ::ilogbf(x); }
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.693147180559945309417f
#define M_PI_F 3.14159265358979323846f
#define __METAL_MAYBE_FAST_MATH__ false
#define __METAL_FAST_MATH__ true
#define __METAL_PRECISE_MATH__ false
