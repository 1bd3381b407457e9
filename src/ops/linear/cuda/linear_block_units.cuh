#pragma once
#include "ops/cuda/reduce.cuh"
#include "ops/linear/cuda/linear_blocks.h"
#include "ops/linear/cuda/linear_units.cuh"

// Units (linear_units.cuh) of matrices in blocks, and what all kernels do with their stages.
namespace quire::ops {

// A lane's words of a stage, by load(pointer to uint4, uint2 or uint32_t).
template <int kBits, class Load>
__device__ inline void load_stage(const void* stage, const Load& load, uint32_t (&words)[kBits]) {
  constexpr int kWide = kBits / 4;  // times 16 bytes
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < kWide; ++i) {
    const uint4 four = load(static_cast<const uint4*>(stage) + i * 32 + lane);
    words[i * 4] = four.x, words[i * 4 + 1] = four.y;
    words[i * 4 + 2] = four.z, words[i * 4 + 3] = four.w;
  }
  const auto* rest = static_cast<const uint32_t*>(stage) + kWide * 128;
  if constexpr ((kBits & 2) != 0) {
    const uint2 two = load(reinterpret_cast<const uint2*>(rest) + lane);
    words[kWide * 4] = two.x, words[kWide * 4 + 1] = two.y;
  }
  if constexpr ((kBits & 1) != 0) words[kBits - 1] = load(rest + (kBits & 2) * 32 + lane);
}

struct LoadOnceIf {
  bool wanted;
  template <class V>
  __device__ V operator()(const V* p) const {
    return load_once_if(wanted, p);
  }
};
struct LoadShared {
  template <class V>
  __device__ V operator()(const V* p) const {
    return *p;
  }
};

// The scales of a stage, of which the four lanes that share rows have a quarter each: lane v % 4
// that of group v / 2 in row lane / 4 + v % 2 * 8.
template <CudaSource kSource>
struct QuadScales {
  static constexpr int kGroups = 64 / least_group(kSource), kOwn = kGroups / 2;
  ScaleAndBias own[kOwn];

  // `scales` are those of the stage's block, of which it is half `half`.
  __device__ QuadScales(const CudaWeightLayout& l, const void* scales, int half) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int k = half * 64 + (2 * i + lane % 4 / 2) * least_group(kSource);
      own[i] =
          block_scale<kSource>(l, static_cast<const uint8_t*>(scales), k, lane / 4 + lane % 2 * 8);
    }
  }
  __device__ ScaleAndBias operator()(int group, int second) const {
    const int from = static_cast<int>(threadIdx.x) % 32 / 4 * 4 + group % 2 * 2 + second;
    const ScaleAndBias& s = own[group / 2];
    return {__shfl_sync(kWholeWarp, s.scale, from),
            has_bias(kSource) ? __shfl_sync(kWholeWarp, s.bias, from) : 0};
  }
};

// A lane's part of A for a stage's four steps; all lanes of the warp take part.
template <CudaSource kSource, class T>
__device__ inline void dequantise_stage(const CudaWeightLayout& l,
                                        const uint32_t (&words)[source_bits(kSource)],
                                        const void* scales, int half, const float* table,
                                        uint4 (&a)[4]) {
  constexpr FloatType kType = std::is_same_v<T, DeviceBf16> ? FloatType::kBf16 : FloatType::kF16;
  const QuadScales<kSource> quad(l, scales, half);
  uint32_t parts[4][4];
  dequantise_stage<kSource, kType>(words, quad, table, parts);
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = make_uint4(parts[i][0], parts[i][1], parts[i][2], parts[i][3]);
}

// The block's table in shared memory; others read it behind a barrier.
template <CudaSource kSource>
__device__ inline void fill_table(const CudaWeightLayout& l, float* table) {
  if constexpr (kSource == CudaSource::kTable4) {
#pragma unroll
    for (int i = 0; i < 16; ++i)
      if (static_cast<int>(threadIdx.x) == i) table[i] = l.table[i];
  }
}

template <CudaSource kSource>
  requires(is_in_blocks(kSource))
struct UnitWeights<kSource> {
  static constexpr int kBits = source_bits(kSource);
  static constexpr int kLoads = 4;  // stages of 64 k
  uint32_t words[kLoads][kBits];
  uint4 scales;    // 16 bytes a lane of the unit's two blocks
  int stages = 0;  // that there are
};

template <CudaSource kSource>
  requires(is_in_blocks(kSource))
__device__ inline UnitSource unit_source(const CudaWeightLayout& l, const void* packed, int panel,
                                         int chunk) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const char* base = static_cast<const char*>(packed);
  const int chunk_bytes = 2 * l.block_scale_bytes,
            row_bytes = static_cast<int>(l.panel_scale_bytes());
  UnitSource s;
  s.values =
      reinterpret_cast<const uint4*>(base + panel * l.panel_bytes() + chunk * 4 * l.stage_bytes());
  s.loads = min(4, static_cast<int>(l.padded_k() / 64) - chunk * 4);
  s.pairs = reinterpret_cast<const uint4*>(base + l.scales_offset() +
                                           panel * l.panel_scale_bytes() + chunk * chunk_bytes) +
            lane;
  s.pair_loads = min(chunk_bytes, row_bytes - chunk * chunk_bytes) / 16;
  return s;
}

template <CudaSource kSource>
  requires(is_in_blocks(kSource))
__device__ inline void ask_value(UnitWeights<kSource>& w, const UnitSource& s, int i) {
  constexpr int kBits = source_bits(kSource);
  load_stage(s.values + i * kBits * 8, LoadOnceIf{i < s.loads}, w.words[i]);
}
template <CudaSource kSource>
  requires(is_in_blocks(kSource))
__device__ inline void ask_pairs(UnitWeights<kSource>& w, const UnitSource& s) {
  w.scales = load_once_if(static_cast<int>(threadIdx.x) % 32 < s.pair_loads, s.pairs);
  w.stages = s.loads;
}

template <CudaSource kSource, class T, int kTiles>
  requires(is_in_blocks(kSource))
__device__ inline void run_unit(const CudaWeightLayout& l, UnitWeights<kSource>& w,
                                const UnitSource& next, const T* x, int pitch,
                                const UnitMemory& memory, float (&c)[kTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, stages = w.stages;
  __syncwarp();
  reinterpret_cast<uint4*>(memory.scales)[lane] = w.scales;
  __syncwarp();
  ask_pairs(w, next);
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) c[n][i] = 0;
  const T* row = x + lane % 8 * pitch + lane / 8 * 8;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint4 a[4] = {};
    if (i < stages)
      dequantise_stage<kSource, T>(l, w.words[i], memory.scales + i / 2 * l.block_scale_bytes,
                                   i % 2, memory.table, a);
    ask_value(w, next, i);
#pragma unroll
    for (int step = 0; step < 4; step += 2) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const uint4 b = load_matrices(row + n * 8 * pitch + i * 64 + step * 16);
        mma(c[n], a[step], b.x, b.y, T());
        mma(c[n], a[step + 1], b.z, b.w, T());
      }
    }
  }
}

}  // namespace quire::ops
