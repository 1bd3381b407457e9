#pragma once
#include <cstdint>

namespace quire::ops {

// MLX's formats of small floats: groups of neighbouring k of one output row share a scale of one
// byte, w = code * scale. Values are those of the formula in float32, rounded once to the model's
// dtype: bfloat16 and float32 hold all of them exactly, except denormals, which count as zero.
enum class BlockFloat : uint8_t {
  kNone,
  kMxfp4,  // 4 bits (e2m1) in groups of 32, scales 2^(byte - 127)
  kMxfp8,  // 8 bits (e4m3) in groups of 32, scales 2^(byte - 127)
  kNvfp4,  // 4 bits (e2m1) in groups of 16, scales e4m3
};

struct BlockFloatFormat {
  const char* name;
  int bits;
  int64_t group_size;
};
inline BlockFloatFormat block_float_format(BlockFloat format) {
  constexpr BlockFloatFormat kFormats[] = {
      {"none", 0, 0}, {"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}};
  return kFormats[static_cast<int>(format)];
}

// Scales as they are packed, so that a kernel needs no exception. Of mxfp4 and mxfp8: the exponent
// of the float32 that halved codes of 4 bits, and codes of 8 bits times 2^-8, are multiplied by.
// The smallest scale then is no denormal, and larger ones than 2^119, which would overflow, are
// refused. Of nvfp4: e4m3 as it is. Padding is a zero scale.
constexpr int kMxfp4ExponentOffset = 1, kMxfp8ExponentOffset = 8;
constexpr int kMostScaleByte = 246;  // as stored

}  // namespace quire::ops
