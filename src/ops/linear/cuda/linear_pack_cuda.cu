#include "ops/cuda/launch.cuh"
#include "ops/linear/cuda/linear_weight.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 256;

__device__ inline float read_float(const void* p, FloatType type, int64_t at) {
  switch (type) {
    case FloatType::kF32:
      return static_cast<const float*>(p)[at];
    case FloatType::kF16:
      return widen(static_cast<const DeviceF16*>(p)[at]);
    case FloatType::kBf16:
      return widen(static_cast<const DeviceBf16*>(p)[at]);
  }
  return 0;
}

// A thread for each element of the rows.
template <class T>
__global__ void __launch_bounds__(kThreads) pack_dense(const PackRowsCudaParams p) {
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.rows * p.layout.k) return;
  const int64_t row = p.layout.packed_row(p.first_row + index / p.layout.k);
  const int64_t k = index % p.layout.k;
  T* panel = reinterpret_cast<T*>(static_cast<char*>(p.packed) + row / 16 * p.layout.panel_bytes());
  panel[packed_index<T>(row % 16, k)] = narrow<T>(read_float(p.source, p.source_type, index));
}

// A thread for each 32-bit word of packed values of two rows; what another part writes of it is
// left alone.
__global__ void __launch_bounds__(kThreads) pack_integers(const PackRowsCudaParams p) {
  const CudaWeightLayout& l = p.layout;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= p.rows * l.k) return;
  const int64_t row = l.packed_row(p.first_row + index / l.k), k = index % l.k;
  const int64_t bit = k * p.source_bits;
  const uint8_t* from =
      static_cast<const uint8_t*>(p.source) + index / l.k * (l.k * p.source_bits / 8) + bit / 8;
  uint32_t two = from[0];
  if (bit % 8 + p.source_bits > 8) two |= static_cast<uint32_t>(from[1]) << 8;
  const uint32_t value = (two >> (bit % 8)) & ((1u << p.source_bits) - 1);
  const int64_t at = integer_index(l.bits, row % 16, k);  // in values of l.bits
  auto* words =
      reinterpret_cast<uint32_t*>(static_cast<char*>(p.packed) + row / 16 * l.panel_bytes());
  const int64_t per_word = 32 / l.bits;
  atomicOr(words + at / per_word, value << (at % per_word * l.bits));
}

__global__ void __launch_bounds__(kThreads) pack_scales(const PackRowsCudaParams p) {
  const CudaWeightLayout& l = p.layout;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x, groups = l.k / l.group_size;
  if (index >= p.rows * groups) return;
  const int64_t row = l.packed_row(p.first_row + index / groups), group = index % groups;
  const int64_t from =
      index / groups * (l.k / p.source_group) + group * l.group_size / p.source_group;
  char* to = static_cast<char*>(p.packed) + l.scales_offset() + row / 16 * l.panel_scale_bytes() +
             (group * 16 + row % 16) * l.pair_bytes();
  if (l.scale_type == FloatType::kF32) {
    reinterpret_cast<float*>(to)[0] = read_float(p.scales, p.source_scale_type, from);
    reinterpret_cast<float*>(to)[1] = read_float(p.biases, p.source_scale_type, from);
  } else {
    const uint32_t scale = static_cast<const uint16_t*>(p.scales)[from];
    const uint32_t bias = static_cast<const uint16_t*>(p.biases)[from];
    *reinterpret_cast<uint32_t*>(to) = scale << 16 | bias;
  }
}

// Packing kernels do not overlap with others: plain launches.
template <class Kernel>
void pack(CudaStream stream, Kernel kernel, int64_t items, const PackRowsCudaParams& p) {
  if (items == 0) return;
  kernel<<<blocks_for(items, kThreads), kThreads, 0, stream>>>(p);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw_cuda("pack_matrix", error);
}

}  // namespace

void clear_packed_cuda(CudaStream stream, const CudaWeightLayout& layout, void* packed) {
  const cudaError_t error = cudaMemsetAsync(packed, 0, static_cast<size_t>(layout.bytes()), stream);
  if (error != cudaSuccess) throw_cuda("pack_matrix", error);
}

void pack_rows_cuda(CudaStream stream, const PackRowsCudaParams& p) {
  const int64_t elements = p.rows * p.layout.k;
  if (p.layout.bits == 0)
    return with_float_type(p.layout.type,
                           [&](auto t) { pack(stream, pack_dense<decltype(t)>, elements, p); });
  pack(stream, pack_integers, elements, p);
  pack(stream, pack_scales, p.rows * (p.layout.k / p.layout.group_size), p);
}

}  // namespace quire::ops
