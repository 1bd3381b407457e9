#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

namespace quire::ops {

// The value of a function constant; those of a kernel are in its pipeline's key.
struct MetalConstant {
  int index = 0;
  uint8_t bytes[4] = {};
  uint8_t size = 0;

  bool is_bool() const { return size == 1; }
  int32_t value() const {
    int32_t value = bytes[0];
    if (!is_bool()) std::memcpy(&value, bytes, sizeof value);
    return value;
  }
};
template <class T>
MetalConstant metal_constant(int index, T value) {
  static_assert(std::is_same_v<T, bool> || std::is_same_v<T, int32_t>);
  MetalConstant constant = {.index = index, .size = sizeof value};
  std::memcpy(constant.bytes, &value, sizeof value);
  return constant;
}

// The largest unit, of 16, 8, 4 or 2 bytes, that all of these numbers of bytes are made of; 1:
// none.
inline int64_t metal_unit(std::initializer_list<int64_t> bytes) {
  int64_t unit = 16;
  for (const int64_t count : bytes)
    while (count % unit != 0) unit /= 2;
  return unit;
}

// Threads of a threadgroup that copies a row of so many units.
inline uint32_t metal_copy_threads(int64_t units) {
  return static_cast<uint32_t>(std::clamp<int64_t>((units + 31) / 32 * 32, 32, 256));
}

struct MetalSize {
  uint32_t x = 1, y = 1, z = 1;
};

// A dispatch of a kernel, but for its buffers: what an encoder must be told.
struct MetalCall {
  std::string kernel;  // the host name
  std::vector<MetalConstant> constants = {};
  uint32_t threadgroup_bytes = 0;  // of threadgroup memory 0, a multiple of 16; 0: there is none
  MetalSize groups = {};           // threadgroups; none if an axis is 0
  MetalSize threads = {};          // of each
};

}  // namespace quire::ops
