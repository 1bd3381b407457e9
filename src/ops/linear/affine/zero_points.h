#pragma once
#include <cstdint>

namespace quire::ops {

// Where the zero points of affine weights are.
enum class ZeroPoints : uint8_t {
  kNone,   // there are none: each group has a bias, a float of its scale's type
  kSame,   // one for the whole matrix, `least_zero`
  kBytes,  // each group has a byte, which is added to `least_zero`
};

}  // namespace quire::ops
