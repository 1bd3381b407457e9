#pragma once
#include "ops/cuda/floats.cuh"
#include "ops/linear/cuda/linear_blocks.h"
#include "ops/linear/cuda/linear_cuda.h"

// Where the elements of packed weights lie (CudaWeightLayout), and what they stand for.
namespace quire::ops {

// Element (row, k) of a lane's eight within a step of 16 k.
__host__ __device__ inline int64_t lane_of(int64_t row, int64_t k) {
  return row % 8 * 4 + k % 8 / 2;
}
__host__ __device__ inline int64_t element_of(int64_t row, int64_t k) {
  return (row / 8 + k % 16 / 8 * 2) * 2 + k % 2;
}

// Index of element (row, k) of a panel of floats.
template <class T>
__host__ __device__ inline int64_t packed_index(int64_t row, int64_t k) {
  if (sizeof(T) == 4) return k * 16 + row;
  return (k / 16 * 32 + lane_of(row, k)) * 8 + element_of(row, k);
}
// Index of element (row, k) of a panel of integers of so many bits.
__host__ __device__ inline int64_t integer_index(int bits, int64_t row, int64_t k) {
  const int64_t steps = bits == 8 ? 2 : 4;  // that a lane's 16 bytes hold
  return ((k / 16 / steps * 32 + lane_of(row, k)) * steps + k / 16 % steps) * 8 +
         element_of(row, k);
}

__device__ inline ScaleAndBias split_pair(const void* p, FloatType type) {
  if (type == FloatType::kF32) {
    const float2 both = *static_cast<const float2*>(p);
    return {both.x, both.y};
  }
  const uint32_t both = *static_cast<const uint32_t*>(p);
  if (type == FloatType::kBf16)
    return {__uint_as_float(both & 0xFFFF0000u), __uint_as_float(both << 16)};
  return {__half2float(__ushort_as_half(static_cast<uint16_t>(both >> 16))),
          __half2float(__ushort_as_half(static_cast<uint16_t>(both)))};
}

// Not fused: scale * q is rounded first (and exact where scales have 16 bits).
__device__ inline float dequantised(const ScaleAndBias& s, float q) {
  return __fadd_rn(__fmul_rn(s.scale, q), s.bias);
}

// Element (packed row, k) of a matrix in blocks, in float32 before it is rounded. Slow.
__device__ inline float block_weight(const CudaWeightLayout& l, const void* packed, int64_t row,
                                     int64_t k) {
  const auto* base = static_cast<const uint8_t*>(packed);
  const uint8_t* stage = base + row / 16 * l.panel_bytes() + k / 64 * l.stage_bytes();
  const uint8_t* scales =
      base + l.scales_offset() + row / 16 * l.panel_scale_bytes() + k / 128 * l.block_scale_bytes;
  const uint32_t code = stage_code(l.bits, reinterpret_cast<const uint32_t*>(stage),
                                   static_cast<int>(row % 16), static_cast<int>(k % 64));
  float value = 0;
  with_block_source(l.block_source, [&](auto source) {
    const ScaleAndBias s = block_scale<source()>(l, scales, static_cast<int>(k % 128 / 16 * 16),
                                                 static_cast<int>(row % 16));
    value = block_value<source()>(s, code_values<source()>(code, l.table).first);
  });
  return value;
}

// Element (packed row, k) of any packed matrix, in float32 as it counts: dequantised values are
// rounded to T. Slow.
template <class T>
__device__ inline float weight_value(const CudaWeightLayout& l, const void* packed, int64_t row,
                                     int64_t k) {
  const char* panel = static_cast<const char*>(packed) + row / 16 * l.panel_bytes();
  if (l.bits == 0) return widen(reinterpret_cast<const T*>(panel)[packed_index<T>(row % 16, k)]);
  if (is_in_blocks(l.block_source)) return rounded<T>(block_weight(l, packed, row, k));
  const int64_t at = integer_index(l.bits, row % 16, k);
  const auto byte = static_cast<uint8_t>(panel[l.bits == 8 ? at : at / 2]);
  const uint32_t q = l.bits == 8 ? byte : (byte >> (at % 2 * 4)) & 15u;
  const char* scales = static_cast<const char*>(packed) + l.scales_offset() +
                       row / 16 * l.panel_scale_bytes() +
                       (k / l.group_size * 16 + row % 16) * l.pair_bytes();
  const ScaleAndBias s = split_pair(scales, l.scale_type);
  return rounded<T>(dequantised(s, static_cast<float>(q)));
}

}  // namespace quire::ops
