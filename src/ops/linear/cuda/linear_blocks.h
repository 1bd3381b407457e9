#pragma once
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/linear/cuda/linear_cuda_layout.h"

// What a GPU's kernels make of a matrix in blocks (CudaWeightLayout): from a lane's words of a
// stage and the scales of its block to elements of A, as each format's formula says in float32,
// rounded once. Free of what only a GPU has, so that the host's compiler reads it, too, and tests
// run it.
namespace quire::ops {

#ifdef __CUDA_ARCH__
#define QUIRE_UNROLL _Pragma("unroll")
#else
#define QUIRE_UNROLL
#endif

struct ScaleAndBias {
  float scale, bias;
};
struct TwoFloats {
  float first, second;
};

template <CudaSource kSource>
using SourceConstant = std::integral_constant<CudaSource, kSource>;
// Calls f with the source of a matrix in blocks as a type.
template <class F>
QUIRE_HOST_DEVICE inline void with_block_source(CudaSource source, const F& f) {
  switch (source) {
    case CudaSource::kInt2:
      return f(SourceConstant<CudaSource::kInt2>());
    case CudaSource::kInt3:
      return f(SourceConstant<CudaSource::kInt3>());
    case CudaSource::kInt4:
      return f(SourceConstant<CudaSource::kInt4>());
    case CudaSource::kInt5:
      return f(SourceConstant<CudaSource::kInt5>());
    case CudaSource::kInt6:
      return f(SourceConstant<CudaSource::kInt6>());
    case CudaSource::kInt8:
      return f(SourceConstant<CudaSource::kInt8>());
    case CudaSource::kFloat4:
      return f(SourceConstant<CudaSource::kFloat4>());
    case CudaSource::kFloat8:
      return f(SourceConstant<CudaSource::kFloat8>());
    case CudaSource::kTable4:
      return f(SourceConstant<CudaSource::kTable4>());
    case CudaSource::kDense:
    case CudaSource::kAffine4:
    case CudaSource::kAffine8:
      break;
  }
}

namespace blocks {

// `from` is aligned to the word.
template <class Word>
QUIRE_HOST_DEVICE inline Word load(const uint8_t* from) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const Word*>(from);
#else
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
#endif
}

QUIRE_HOST_DEVICE inline float float_of(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return bits_to_float(bits);
#endif
}
QUIRE_HOST_DEVICE inline float half_of(uint16_t bits) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(bits));
#else
  return to_float(F16{bits});
#endif
}

// Two float16 in the halves of a word, less `minus`, which is exact here; then times `factor`.
QUIRE_HOST_DEVICE inline TwoFloats halves_of(uint32_t bits, float minus, float factor) {
#ifdef __CUDA_ARCH__
  __half2 both = *reinterpret_cast<const __half2*>(&bits);
  if (minus != 0) both = __hsub2(both, __float2half2_rn(minus));
  if (factor != 1) both = __hmul2(both, __float2half2_rn(factor));
  const float2 wide = __half22float2(both);
  return {wide.x, wide.y};
#else
  const auto one = [&](uint32_t half) {
    return (half_of(static_cast<uint16_t>(half)) - minus) * factor;
  };
  return {one(bits & 0xFFFF), one(bits >> 16)};
#endif
}

QUIRE_HOST_DEVICE inline float fused(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return fmaf(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

// Two values as 16-bit floats of `kType`, the first one in the low half.
template <FloatType kType>
QUIRE_HOST_DEVICE inline uint32_t packed(float first, float second) {
  static_assert(kType != FloatType::kF32);
#ifdef __CUDA_ARCH__
  if constexpr (kType == FloatType::kBf16) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&both);
  } else {
    const __half2 both = __floats2half2_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&both);
  }
#else
  const auto one = [](float v) {
    return uint32_t{kType == FloatType::kBf16 ? from_float<Bf16>(v).bits : from_float<F16>(v).bits};
  };
  return one(first) | one(second) << 16;
#endif
}

QUIRE_HOST_DEVICE inline float half_at(const uint8_t* halves, int i) {
  return half_of(load<uint16_t>(halves + 2 * i));
}

QUIRE_HOST_DEVICE inline int bits_at(uint32_t word, int shift, uint32_t mask) {
  return static_cast<int>(word >> shift & mask);
}

// A scale of 6 bits, in two parts.
QUIRE_HOST_DEVICE inline float six_bits(int low, int high) {
  return static_cast<float>(low + 16 * high - 32);
}

// Codes that stand for their distance from `zero`.
QUIRE_HOST_DEVICE inline ScaleAndBias around(float scale, int zero) {
  return {scale, -(scale * static_cast<float>(zero))};
}

}  // namespace blocks

// Bits of the pair `index` of a stage (CudaWeightLayout): two codes, 16 bits apart.
template <int kBits>
QUIRE_HOST_DEVICE inline uint32_t code_pair(const uint32_t (&words)[kBits], int index) {
  uint32_t pair = 0;
  int first = 0, at = 0;  // word of a plane, and bits below its part of a code
  QUIRE_UNROLL
  for (int plane = 8; plane > 0; plane /= 2) {
    if ((kBits & plane) == 0) continue;
    const int in_word = 16 / plane;  // pairs
    const uint32_t mask = ((1u << plane) - 1) * 0x00010001u;
    pair |= (words[first + index / in_word] >> (index % in_word * plane) & mask) << at;
    first += plane;
    at += plane;
  }
  return pair;
}

// What the two codes of a pair stand for, before their scale. Float formats: times the power of two
// that block_float.h takes out of the scales as they are packed; e2m1 halved.
template <CudaSource kSource>
QUIRE_HOST_DEVICE inline TwoFloats code_values(uint32_t pair, const float* table) {
  if constexpr (kSource == CudaSource::kTable4) {
    return {table[pair & 15u], table[pair >> 16]};
  } else if constexpr (kSource == CudaSource::kFloat8) {
    // e4m3's exponent is 8 less than float16's: values times 2^-8.
    return blocks::halves_of((pair & 0x007F007Fu) << 7 | (pair & 0x00800080u) << 8, 0, 1);
  } else if constexpr (kSource == CudaSource::kFloat4) {
    // e2m1's exponent is 14 less: values times 2^-14, then halved ones.
    return blocks::halves_of((pair & 0x00070007u) << 9 | (pair & 0x00080008u) << 12, 0, 0x1p13f);
  } else {
    // float16 1024 + q.
    return blocks::halves_of(pair | 0x64006400u, 1024, 1);
  }
}

// Of formats of GGUF.
template <CudaSource kSource>
QUIRE_HOST_DEVICE inline ScaleAndBias gguf_scale(GgufFormat format, const uint8_t* scales, int k,
                                                 int row) {
  using namespace blocks;
  const int group = k / 32;
  if constexpr (kSource == CudaSource::kInt2) {
    const int byte = scales[64 + k + row];
    return {half_at(scales, row) * static_cast<float>(byte & 15),
            -(half_at(scales, 16 + row) * static_cast<float>(byte >> 4))};
  } else if constexpr (kSource == CudaSource::kInt3) {
    const int low = bits_at(load<uint32_t>(scales + 32 + 4 * row), k / 4, 15);
    const int high = bits_at(load<uint16_t>(scales + 96 + 2 * row), k / 8, 3);
    return around(half_at(scales, row) * six_bits(low, high), 4);
  } else if constexpr (kSource == CudaSource::kInt6) {
    const auto scale = static_cast<float>(static_cast<int8_t>(scales[32 + k + row]));
    return around(half_at(scales, row) * scale, 32);
  } else if constexpr (kSource == CudaSource::kTable4) {
    if (format == GgufFormat::kIq4Nl) return {half_at(scales, group * 16 + row), 0};
    const int low = bits_at(load<uint16_t>(scales + 32 + 2 * row), 4 * group, 15);
    const int high = bits_at(scales[64 + row], 2 * group, 3);
    return {half_at(scales, row) * six_bits(low, high), 0};
  } else {
    if (format == GgufFormat::kQ4_K || format == GgufFormat::kQ5_K) {
      const int byte = bits_at(load<uint32_t>(scales + 64 + 4 * row), 8 * group, 255);
      const int low = bits_at(load<uint16_t>(scales + 128 + 2 * row), 4 * group, 15);
      return {half_at(scales, row) * static_cast<float>(byte & 63),
              -(half_at(scales, 16 + row) * static_cast<float>((byte >> 6) * 16 + low))};
    }
    const float scale = half_at(scales, group * 16 + row);
    if (format == GgufFormat::kQ5_1) return {scale, half_at(scales + 128, group * 16 + row)};
    return around(scale, 1 << (source_bits(kSource) - 1));  // q4_0, q5_0, q8_0
  }
}

// Of affine weights with zero points.
QUIRE_HOST_DEVICE inline ScaleAndBias zero_point_scale(const CudaWeightLayout& l,
                                                       const uint8_t* scales, int k, int row) {
  const int groups = l.group_size == 32 ? 4 : (l.group_size == 64 ? 2 : 1);  // of a block
  const int index = k * groups / 128 * 16 + row;
  const auto bits = blocks::load<uint16_t>(scales + 2 * index);
  const float scale = l.scale_type == FloatType::kF16 ? blocks::half_of(bits)
                                                      : blocks::float_of(uint32_t{bits} << 16);
  int zero = l.least_zero;
  if (l.zeros == ZeroPoints::kBytes) zero += scales[groups * 32 + index];
  return blocks::around(scale, zero);
}

// Of small floats, as code_values() has them.
template <CudaSource kSource>
QUIRE_HOST_DEVICE inline float float_scale(BlockFloat format, const uint8_t* scales, int k,
                                           int row) {
  using namespace blocks;
  if constexpr (kSource == CudaSource::kTable4)
    return float_of(load<uint32_t>(scales + 4 * (k / 64 * 16 + row)));
  if (format == BlockFloat::kFloat8) return float_of(load<uint32_t>(scales + 4 * row));
  if (format == BlockFloat::kMxfp4 || format == BlockFloat::kMxfp8)
    return float_of(uint32_t{scales[k / 32 * 16 + row]} << 23);
  // e4m3 without a sign, twice as large as halved codes want it.
  const float scale = half_of(static_cast<uint16_t>(scales[k + row] << 7)) * 0x1p9f;
  if (format == BlockFloat::kNvfp4) return scale;
  const auto* of_tensor = scales + kNvfp4TailAt;
  return scale * float_of(load<uint32_t>(of_tensor)) / float_of(load<uint32_t>(of_tensor + 4));
}

// Of the group that columns k to k + 16 of a block are in, a multiple of 16, in row `row` of the
// panel.
template <CudaSource kSource>
QUIRE_HOST_DEVICE inline ScaleAndBias block_scale(const CudaWeightLayout& l, const uint8_t* scales,
                                                  int k, int row) {
  constexpr bool kFloats = kSource == CudaSource::kFloat4 || kSource == CudaSource::kFloat8;
  constexpr bool kZeros = kSource == CudaSource::kInt4 || kSource == CudaSource::kInt8;
  if constexpr (kFloats) {
    return {float_scale<kSource>(l.block_float, scales, k, row), 0};
  } else {
    if (kSource == CudaSource::kTable4 && l.gguf == GgufFormat::kNone)
      return {float_scale<kSource>(l.block_float, scales, k, row), 0};
    if (kZeros && l.gguf == GgufFormat::kNone) return zero_point_scale(l, scales, k, row);
    return gguf_scale<kSource>(l.gguf, scales, k, row);
  }
}

// Whether values have a bias beside their scale.
constexpr bool has_bias(CudaSource source) {
  return source != CudaSource::kFloat4 && source != CudaSource::kFloat8 &&
         source != CudaSource::kTable4;
}

// One value in float32. Products with whole numbers are exact, so that this is one rounding at
// most.
template <CudaSource kSource>
QUIRE_HOST_DEVICE inline float block_value(const ScaleAndBias& s, float code) {
  return has_bias(kSource) ? blocks::fused(s.scale, code, s.bias) : s.scale * code;
}

// k that share a scale in every format of the kind, 16 or more.
constexpr int least_group(CudaSource source) {
  switch (source) {
    case CudaSource::kInt2:
    case CudaSource::kInt3:
    case CudaSource::kInt6:
    case CudaSource::kFloat4:
      return 16;
    default:
      return 32;
  }
}

// A lane's part of A for the four steps of a stage. scale(group, second) is that of one of the
// stage's groups of least_group() k, in row lane / 4 or, `second`, 8 further.
template <CudaSource kSource, FloatType kType, class Scale>
QUIRE_HOST_DEVICE inline void dequantise_stage(const uint32_t (&words)[source_bits(kSource)],
                                               const Scale& scale, const float* table,
                                               uint32_t (&a)[4][4]) {
  constexpr int kGroupSteps = least_group(kSource) / 16;
  ScaleAndBias s[2] = {};
  QUIRE_UNROLL
  for (int step = 0; step < 4; ++step) {
    if (step % kGroupSteps == 0) {
      s[0] = scale(step / kGroupSteps, 0);
      s[1] = scale(step / kGroupSteps, 1);
    }
    QUIRE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const auto codes =
          code_values<kSource>(code_pair<source_bits(kSource)>(words, step * 4 + i), table);
      a[step][i] = blocks::packed<kType>(block_value<kSource>(s[i % 2], codes.first),
                                         block_value<kSource>(s[i % 2], codes.second));
    }
  }
}

// Where a plane of so many bits of a stage has word `word` of a lane, in words from the plane's
// first one.
QUIRE_HOST_DEVICE constexpr int plane_word(int plane, int lane, int word) {
  const int together = plane < 4 ? plane : 4;  // words of a lane
  return word / together * 128 + lane * together + word % together;
}

// Element (row, k) of a panel's stage: its lane, its pair of the lane's and its place there.
struct StagePlace {
  int lane, pair, second;
};
QUIRE_HOST_DEVICE constexpr StagePlace stage_place(int row, int k) {
  return {row % 8 * 4 + k % 8 / 2, k / 16 * 4 + row / 8 + k % 16 / 8 * 2, k % 2};
}

// One code of a stage.
QUIRE_HOST_DEVICE inline uint32_t stage_code(int bits, const uint32_t* stage, int row, int k) {
  const StagePlace place = stage_place(row, k);
  uint32_t code = 0;
  int at = 0;
  for (int plane = 8; plane > 0; plane /= 2) {
    if ((bits & plane) == 0) continue;
    const int in_word = 16 / plane;
    const uint32_t word = stage[plane_word(plane, place.lane, place.pair / in_word)];
    const int shift = place.pair % in_word * plane + place.second * 16;
    code |= (word >> shift & ((1u << plane) - 1)) << at;
    stage += plane * 32;
    at += plane;
  }
  return code;
}

#undef QUIRE_UNROLL

}  // namespace quire::ops
