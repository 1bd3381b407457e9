#pragma once
#include <metal_stdlib>

// What the kernels in Metal's language share.

// A kernel's template for these arguments, under a host name.
#define QUIRE_KERNEL(name, function, ...) \
  template [[host_name(name)]] [[kernel]] decltype(function<__VA_ARGS__>) function<__VA_ARGS__>;

namespace quire {

constant constexpr int kLanes = 32;  // of a simdgroup, on every Apple GPU
constant constexpr float kLog2E = 1.44269504f;
constant constexpr float kLn2 = 0.693147181f;

// A float as it is after it was stored as T.
template <typename T>
inline float rounded(float x) {
  return float(T(x));
}

}  // namespace quire
