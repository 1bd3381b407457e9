#pragma once
#include "ops/cuda/mma.cuh"
#include "ops/linear/cuda/linear_weight.cuh"

// A warp's units of work: one chunk of 256 k of one panel of 16 weights, times some tokens.
namespace quire::ops {

// A unit's weights on their way through registers: 16 bytes a lane and load; the next unit's loads
// take the place of those that are used.
template <CudaSource kSource>
struct UnitWeights {
  static constexpr int kBits = source_bits(kSource);
  static constexpr int kLoads = kBits == 0 ? 16 : kBits;  // of a lane, for 256 k
  static constexpr int kStepsPerLoad = 16 / kLoads;
  uint4 values[kLoads];
  uint4 pairs[kBits == 0 ? 1 : 2];  // scales and biases of the unit's groups, 16 bytes a lane
};

// Where a unit's weights lie; `loads` of them exist (a row's last chunk may be short).
struct UnitSource {
  const uint4* values = nullptr;
  int loads = 0;
  const uint4* pairs = nullptr;
  int pair_loads = 0;  // 16-byte pieces of scales and biases
};

template <CudaSource kSource>
__device__ inline UnitSource unit_source(const CudaWeightLayout& l, const void* packed, int panel,
                                         int chunk) {
  constexpr int kBits = source_bits(kSource);
  constexpr int kLoads = UnitWeights<kSource>::kLoads;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const char* base = static_cast<const char*>(packed);
  UnitSource s;
  s.values =
      reinterpret_cast<const uint4*>(base + panel * l.panel_bytes()) + chunk * kLoads * 32 + lane;
  s.loads = min(kLoads, static_cast<int>(l.panel_bytes() / 512) - chunk * kLoads);
  if constexpr (kBits != 0) {
    const int chunk_bytes =
        256 / static_cast<int>(l.group_size) * 16 * static_cast<int>(l.pair_bytes());
    s.pairs = reinterpret_cast<const uint4*>(base + l.scales_offset() +
                                             panel * l.panel_scale_bytes() + chunk * chunk_bytes) +
              lane;
    const int row_bytes = static_cast<int>(l.panel_scale_bytes());
    s.pair_loads = min(chunk_bytes, row_bytes - chunk * chunk_bytes) / 16;
  }
  return s;
}

template <CudaSource kSource>
__device__ inline void ask_value(UnitWeights<kSource>& w, const UnitSource& s, int i) {
  w.values[i] = load_once_if(i < s.loads, s.values + i * 32);
}
template <CudaSource kSource>
__device__ inline void ask_pairs(UnitWeights<kSource>& w, const UnitSource& s) {
  constexpr int kBits = source_bits(kSource);
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < (kBits == 0 ? 0 : 2); ++i)
    w.pairs[i] = load_once_if(lane + i * 32 < s.pair_loads, s.pairs + i * 32);
}

// q in [0, 255] as a float, without a conversion.
__device__ inline float small_integer(uint32_t q) {
  return __uint_as_float(0x4B000000u | q) - 8388608.0f;
}

// One step's part of A from eight integers of 4 (in `low`) or 8 bits (in `low`, `high`); the scales
// are those of rows lane / 4 and lane / 4 + 8.
template <int kBits, class T>
__device__ inline uint4 dequantise(uint32_t low, uint32_t high, const ScaleAndBias& s0,
                                   const ScaleAndBias& s1) {
  uint32_t a[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = kBits == 4 ? low >> (8 * i) : (i < 2 ? low : high) >> (i % 2 * 16);
    const uint32_t q0 = word & (kBits == 4 ? 15u : 255u);
    const uint32_t q1 = kBits == 4 ? (word >> 4) & 15u : (word >> 8) & 255u;
    const ScaleAndBias& s = i % 2 == 0 ? s0 : s1;
    a[i] = pack2(dequantised(s, small_integer(q0)), dequantised(s, small_integer(q1)), T());
  }
  return make_uint4(a[0], a[1], a[2], a[3]);
}

__device__ inline uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : (i == 1 ? v.y : (i == 2 ? v.z : v.w));
}

// What units need in shared memory: the warp's own kUnitScales bytes, and the table of kTable4.
inline constexpr int kUnitScales = 1024;
struct UnitMemory {
  char* scales;
  const float* table;
};

// The unit's sums for kTiles x 8 tokens, c = 0 + w x in ascending steps of 16 k; asks for the next
// unit's weights on the way. `x` is the chunk's first column of the first token in shared memory.
template <CudaSource kSource, class T, int kTiles>
__device__ inline void run_unit(const CudaWeightLayout& l, UnitWeights<kSource>& w,
                                const UnitSource& next, const T* x, int pitch,
                                const UnitMemory& memory, float (&c)[kTiles][4]) {
  using W = UnitWeights<kSource>;
  constexpr int kBits = W::kBits;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  [[maybe_unused]] char* pairs = memory.scales;
  if constexpr (kBits != 0) {
    __syncwarp();
    reinterpret_cast<uint4*>(pairs)[lane] = w.pairs[0];
    reinterpret_cast<uint4*>(pairs)[lane + 32] = w.pairs[1];
    __syncwarp();
    ask_pairs(w, next);
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) c[n][i] = 0;
  const T* row = x + lane % 8 * pitch + lane / 8 * 8;
  uint4 b[kTiles];
  ScaleAndBias s0 = {0, 0}, s1 = {0, 0};
#pragma unroll
  for (int i = 0; i < W::kLoads; ++i) {
    const uint4 values = w.values[i];
    ask_value(w, next, i);
#pragma unroll
    for (int j = 0; j < W::kStepsPerLoad; ++j) {
      const int step = i * W::kStepsPerLoad + j;
      if (step % 2 == 0)
#pragma unroll
        for (int n = 0; n < kTiles; ++n) b[n] = load_matrices(row + n * 8 * pitch + step * 16);
      uint4 a = values;
      if constexpr (kBits != 0) {
        if (step % 2 == 0) {  // groups have 32 k or more
          const char* at =
              pairs + (step * 16 / static_cast<int>(l.group_size) * 16 + lane / 4) * l.pair_bytes();
          s0 = split_pair(at, l.scale_type);
          s1 = split_pair(at + 8 * l.pair_bytes(), l.scale_type);
        }
        a = kBits == 4
                ? dequantise<4, T>(word_of(values, j), 0, s0, s1)
                : dequantise<8, T>(word_of(values, 2 * j), word_of(values, 2 * j + 1), s0, s1);
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        mma(c[n], a, step % 2 == 0 ? b[n].x : b[n].z, step % 2 == 0 ? b[n].y : b[n].w, T());
    }
  }
}

}  // namespace quire::ops
