#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

// A row of activations in 8 bits, quantised by groups:
//   scale = max |x| / 127 of the group, q = round_to_even(x * (127 / max |x|)), sum = scale *
//   sum(q), start = -zero * sum(q)
// A group below 2^-100 counts as zero; one that holds an infinity or a NaN has a NaN for scale.
// With `per_token` the largest |x| is that of the whole row: each group gets the same scale.
struct Int8Row {
  int8_t* q = nullptr;       // [K], K a multiple of the group
  float* scale = nullptr;    // [K / group]
  float* sum = nullptr;      // [K / group], or null
  int32_t* start = nullptr;  // [K / group], or null
  int zero = 0;
  bool per_token = false;  // one scale for the whole row
};
// Inside a loop of the pool, or where denormals are zero as there.
void quantize_row_int8_cpu(FloatType type, const void* x, int64_t k, int64_t group,
                           const Int8Row& out);

}  // namespace quire::ops
