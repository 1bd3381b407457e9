#pragma once
#include <cstdint>

namespace quire::ops {

// Small floats: groups of neighbouring k of one output row share a scale, w = code * scale. Values
// are those of the formula in float32, rounded once to the model's dtype. MLX's formats have scales
// of one byte: bfloat16 and float32 hold all of their values exactly, except denormals, which count
// as zero. Codes with a float32 scale are those of checkpoints in 8-bit floats.
enum class BlockFloat : uint8_t {
  kNone,
  kMxfp4,   // 4 bits (e2m1) in groups of 32, scales 2^(byte - 127)
  kMxfp8,   // 8 bits (e4m3) in groups of 32, scales 2^(byte - 127)
  kNvfp4,   // 4 bits (e2m1) in groups of 16, scales e4m3
  kFloat8,  // 8 bits (e4m3) in groups of 128, the last one of a row may be smaller, scales float32
};

struct BlockFloatFormat {
  const char* name;
  int bits;
  int64_t group_size;
  int64_t scale_bytes;
};
__attribute__((always_inline)) inline BlockFloatFormat block_float_format(BlockFloat format) {
  constexpr BlockFloatFormat kFormats[] = {{"none", 0, 0, 0},
                                           {"mxfp4", 4, 32, 1},
                                           {"mxfp8", 8, 32, 1},
                                           {"nvfp4", 4, 16, 1},
                                           {"float8", 8, 128, 4}};
  return kFormats[static_cast<int>(format)];
}

// Scales as they are packed, so that a kernel needs no exception. Of mxfp4 and mxfp8: the exponent
// of the float32 that halved codes of 4 bits, and codes of 8 bits times 2^-8, are multiplied by.
// The smallest scale then is no denormal, and larger ones than 2^119, which would overflow, are
// refused. Of nvfp4: e4m3 as it is. Padding is a zero scale.
constexpr int kMxfp4ExponentOffset = 1, kMxfp8ExponentOffset = 8;
constexpr int kMostScaleByte = 246;  // as stored
// Of float8: what codes times 2^-8 are multiplied by. Sizes between these have room on both sides;
// of others only zero is taken.
constexpr float kFloat8ScaleFactor = 256.0f, kLeastFloat8Scale = 0x1p-80f,
                kMostFloat8Scale = 0x1p80f;

}  // namespace quire::ops
