#pragma once
#include <cstdint>

namespace quire::ops {

// Small floats: groups of neighbouring k of one output row share a scale, w = code * scale. Values
// are those of the formula in float32, rounded once to the model's dtype. MLX's formats have scales
// of one byte: bfloat16 and float32 hold all of their values exactly, except denormals, which count
// as zero. Codes with a float32 scale are those of folders that were made for GPUs.
enum class BlockFloat : uint8_t {
  kNone,
  kMxfp4,  // 4 bits (e2m1) in groups of 32, scales 2^(byte - 127)
  kMxfp8,  // 8 bits (e4m3) in groups of 32, scales 2^(byte - 127)
  kNvfp4,  // 4 bits (e2m1) in groups of 16, scales e4m3
  // The same, whose scales are e4m3 * multiplier / divisor, which are float32 and of a whole
  // tensor; one of them is 1.
  kScaledNvfp4,
  kFloat8,  // 8 bits (e4m3) in groups of 128, the last one of a row may be smaller, scales float32
  kNf4,     // 4 bits (kNf4Values) in groups of 64, scales float32
  // The same, whose scales are map[byte] * factor + offset: each row has a pair of these for 128 k.
  kNestedNf4,
};

// The values of the 16 codes: quantiles of a normal distribution (Dettmers et al. 2023,
// arXiv:2305.14314), as bitsandbytes has them.
constexpr float kNf4Values[16] = {-1.0f,
                                  -0.6961928009986877f,
                                  -0.5250730514526367f,
                                  -0.39491748809814453f,
                                  -0.28444138169288635f,
                                  -0.18477343022823334f,
                                  -0.09105003625154495f,
                                  0.0f,
                                  0.07958029955625534f,
                                  0.16093020141124725f,
                                  0.24611230194568634f,
                                  0.33791524171829224f,
                                  0.44070982933044434f,
                                  0.5626170039176941f,
                                  0.7229568362236023f,
                                  1.0f};

// Of kNestedNf4: behind the scales of a block the pair of each row, a number of 16 bits; behind the
// matrix float32: the map, then the pairs.
constexpr int64_t kNestedTail = 32, kNestedTailAt = 32, kNestedMap = 256, kMostNestedPairs = 65536;

constexpr bool is_nf4(BlockFloat format) {
  return format == BlockFloat::kNf4 || format == BlockFloat::kNestedNf4;
}

// Of kScaledNvfp4: multiplier and divisor, and what keeps the codes aligned; behind the scales.
constexpr int64_t kNvfp4Tail = 16, kNvfp4TailAt = 128;

constexpr bool is_nvfp4(BlockFloat format) {
  return format == BlockFloat::kNvfp4 || format == BlockFloat::kScaledNvfp4;
}

// Codes of e2m1: values that are whole numbers when doubled.
constexpr bool is_e2m1(BlockFloat format) {
  return format == BlockFloat::kMxfp4 || is_nvfp4(format);
}

struct BlockFloatFormat {
  const char* name;
  int bits;
  int64_t group_size;
  int64_t scale_bytes;
  int64_t tail_bytes = 0;  // behind the scales of a block
};
// Not in the function: there, each call would copy the table.
constexpr BlockFloatFormat kBlockFloatFormats[] = {{"none", 0, 0, 0},
                                                   {"mxfp4", 4, 32, 1},
                                                   {"mxfp8", 8, 32, 1},
                                                   {"nvfp4", 4, 16, 1},
                                                   {"nvfp4", 4, 16, 1, kNvfp4Tail},
                                                   {"float8", 8, 128, 4},
                                                   {"nf4", 4, 64, 4},
                                                   {"nf4", 4, 64, 1, kNestedTail}};
__attribute__((always_inline)) inline const BlockFloatFormat& block_float_format(
    BlockFloat format) {
  return kBlockFloatFormats[static_cast<int>(format)];
}

// Scales as they are packed, so that a kernel needs no exception. Of mxfp4 and mxfp8: the exponent
// of the float32 that halved codes of 4 bits, and codes of 8 bits times 2^-8, are multiplied by.
// The smallest scale then is no denormal, and larger ones than 2^119, which would overflow, are
// refused. Of nvfp4: e4m3 as it is. Padding is a zero scale.
constexpr int kMxfp4ExponentOffset = 1, kMxfp8ExponentOffset = 8;
constexpr int kMostScaleByte = 246;  // as stored
// Of float8: what codes times 2^-8 are multiplied by.
constexpr float kFloat8ScaleFactor = 256.0f;
// Sizes of float32 scales, of groups or tensors, between which there is room on both sides. Of
// others only a group's zero is taken.
constexpr float kLeastFloatScale = 0x1p-80f, kMostFloatScale = 0x1p80f;

}  // namespace quire::ops
