#pragma once
#include "ops/cpu/half.h"

namespace quire::ops {

// As Metal's language calls a type of floats; part of kernels' host names.
constexpr const char* metal_type_name(FloatType type) {
  return type == FloatType::kF32 ? "float" : (type == FloatType::kF16 ? "half" : "bfloat");
}

}  // namespace quire::ops
