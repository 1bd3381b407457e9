#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

// to[i] = from[i] for n elements, rounded to nearest even. Either may be unaligned, even to its own
// element (tensors in a mapped file).
void convert_cpu(const void* from, FloatType from_type, void* to, FloatType to_type, int64_t n);

}  // namespace quire::ops
