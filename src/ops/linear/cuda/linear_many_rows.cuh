#pragma once
#include "ops/cuda/mma.cuh"
#include "ops/linear/cuda/linear_block_units.cuh"
#include "ops/linear/cuda/linear_kernels.cuh"

// linear() for many rows: a block has a tile of 128 weights x kTokens tokens and walks K in stages
// of 64 that wait in shared memory.
namespace quire::ops {

inline constexpr int kManyRowsThreads = 256;
inline constexpr int kTilePanels = 8, kStageSteps = 4, kStages = 4;
inline constexpr int kStagesPerChunk = static_cast<int>(kLinearCudaChunk) / 64;

template <class T, CudaSource kSource, int kTokens>
struct ManyRows {
  static constexpr int kBits = source_bits(kSource);
  static constexpr bool kInBlocks = is_in_blocks(kSource);
  static constexpr int kWeightBytes = kTilePanels * kStageSteps * 512;
  static constexpr int kStageBytes = kWeightBytes + kTokens * 128;
  static constexpr int kSumPitch = kTilePanels * 16 + 4;  // of the sums, when all is added up
  static constexpr int kSharedBytes = kStages * kStageBytes > kTokens* kSumPitch * 4
                                          ? kStages* kStageBytes
                                          : kTokens* kSumPitch * 4;
  // A warp copies one panel: so many times 16 bytes a lane and stage, unless it is in blocks.
  static constexpr int kLoads = kBits == 0 ? 4 : kBits / 4;
  static_assert(kTokens > 64 || kSharedBytes <= kLeastBlockMemory - kFixedBlockMemory);
  static constexpr int kRowsOfX = kTokens / 32;  // of a thread, each 16 bytes a stage
  static constexpr int kTiles = kTokens / 16;    // of 8 tokens, of a warp

  const LinearCudaParams& p;
  char* shared;  // [kStages][kStageBytes]
  LinearTask task;
  int first_panel, stages;
  bool wide_x;
  const T* x_from[kRowsOfX];
  const uint4* w_from;
  const char* pairs_from;  // scales and biases: of row lane / 4 of the warp's panel, or its blocks
  int group_shift;
  const float* table;

  // A stage's integers of affine weights on their way, and their scales: of 32 k each, of rows
  // lane / 4 and 8 further. Or a stage's words of a matrix in blocks, whose scales are read where
  // they lie.
  struct Held {
    uint4 values[kInBlocks ? 1 : kLoads];
    uint2 pairs[2][2];
    uint32_t words[kInBlocks ? kBits : 1];
  };

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  __device__ char* stage(int index) const { return shared + index % kStages * kStageBytes; }

  // Rows of x and panels beyond the last are the last again; nothing is made of their sums.
  __device__ void find_sources() {
#pragma unroll
    for (int i = 0; i < kRowsOfX; ++i) {
      const int64_t t = min(static_cast<int64_t>(threadIdx.x / 8 + i * 32), task.count - 1);
      x_from[i] = static_cast<const T*>(p.x) + row_of_x(p, task.first + t) * p.layout.k +
                  threadIdx.x % 8 * 8;
    }
    const int64_t panel = min(int64_t{first_panel} + warp(), p.layout.panels() - 1);
    const char* base = static_cast<const char*>(task.w);
    w_from = reinterpret_cast<const uint4*>(base + panel * p.layout.panel_bytes()) + lane();
    pairs_from = base + p.layout.scales_offset() + panel * p.layout.panel_scale_bytes();
    if constexpr (kInBlocks) {
      w_from -= lane();
    } else {
      pairs_from += lane() / 4 * p.layout.pair_bytes();
      group_shift = 31 - __clz(static_cast<int>(p.layout.group_size));
    }
  }

  // A token's row of 128 bytes has its 16-byte pieces in another order, so that eight rows' pieces
  // are in different banks.
  __device__ void load_x(int index) const {
    const int row = static_cast<int>(threadIdx.x) / 8, piece = static_cast<int>(threadIdx.x) % 8;
    const int at = index * 64, left = static_cast<int>(p.layout.k) - at - piece * 8;
    char* to = stage(index) + kWeightBytes + row * 128 + (piece ^ row % 8) * 16;
#pragma unroll
    for (int i = 0; i < kRowsOfX; ++i) {
      T* out = reinterpret_cast<T*>(to + i * 32 * 128);
      if (wide_x) {
        copy_async(out, left > 0 ? x_from[i] + at : x_from[i], left > 0 ? 16 : 0);
      } else {
        for (int j = 0; j < 8; ++j) out[j] = j < left ? x_from[i][at + j] : narrow<T>(0.0f);
      }
    }
  }
  __device__ void copy_weights(int index) const {
    char* to = stage(index) + warp() * kStageSteps * 512 + lane() * 16;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) copy_async(to + i * 512, w_from + (index * kLoads + i) * 32);
  }

  // Quantised weights pass through registers.
  __device__ void ask_integers(int index, Held& held) const {
    if constexpr (kInBlocks) {
      const bool exists = index < stages;
      load_stage(w_from + (exists ? index : 0) * kBits * 8, LoadOnceIf{exists}, held.words);
    } else {
      ask_affine(index, held);
    }
  }
  __device__ void ask_affine(int index, Held& held) const {
    const bool exists = index < stages;
    const int at = exists ? index : 0, pair_bytes = static_cast<int>(p.layout.pair_bytes());
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      held.values[i] = load_once_if(exists, w_from + (at * kLoads + i) * 32);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const char* from = pairs_from + ((at * 64 + i * 32) >> group_shift) * 16 * pair_bytes;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const char* pair = from + h * 8 * pair_bytes;
        if (pair_bytes == 8)
          held.pairs[i][h] = *reinterpret_cast<const uint2*>(pair);
        else
          held.pairs[i][h].x = *reinterpret_cast<const uint32_t*>(pair);
      }
    }
  }
  __device__ void store_weights(int index, const Held& held) const {
    char* to = stage(index) + warp() * kStageSteps * 512 + lane() * 16;
    if constexpr (kInBlocks) {
      uint4 a[kStageSteps];
      dequantise_stage<kSource, T>(p.layout, held.words,
                                   pairs_from + index / 2 * p.layout.block_scale_bytes, index % 2,
                                   table, a);
#pragma unroll
      for (int step = 0; step < kStageSteps; ++step)
        *reinterpret_cast<uint4*>(to + step * 512) = a[step];
    } else {
      store_affine(to, held);
    }
  }
  __device__ void store_affine(char* to, const Held& held) const {
#pragma unroll
    for (int step = 0; step < kStageSteps; ++step) {
      const ScaleAndBias s0 = split_pair(&held.pairs[step / 2][0], p.layout.scale_type);
      const ScaleAndBias s1 = split_pair(&held.pairs[step / 2][1], p.layout.scale_type);
      uint4 a;
      if constexpr (kBits == 4)
        a = dequantise<4, T>(word_of(held.values[0], step), 0, s0, s1);
      else if constexpr (kBits == 8)
        a = dequantise<8, T>(word_of(held.values[step / 2], step % 2 * 2),
                             word_of(held.values[step / 2], step % 2 * 2 + 1), s0, s1);
      *reinterpret_cast<uint4*>(to + step * 512) = a;
    }
  }

  // Copies a stage; affine: `held` has its integers, and gets the next stage's.
  __device__ void copy_stage(int index, Held& held) const {
    if (index < stages) {
      load_x(index);
      if constexpr (kBits == 0) {
        copy_weights(index);
      } else {
        store_weights(index, held);
        ask_integers(index + 1, held);
      }
    }
    commit_copies();
  }

  // The warp's 2 panels x kTokens / 2 tokens.
  __device__ void multiply(int index, float (&c)[2][kTiles][4]) const {
    const char* weights = stage(index) + warp() / 2 * 2 * kStageSteps * 512 + lane() * 16;
    const int row = warp() % 2 * (kTokens / 2) + lane() / 16 * 8 + lane() % 8;
    const char* x = stage(index) + kWeightBytes + row * 128;
#pragma unroll
    for (int step = 0; step < kStageSteps; ++step) {
      const uint4 a0 = *reinterpret_cast<const uint4*>(weights + step * 512);
      const uint4 a1 = *reinterpret_cast<const uint4*>(weights + (kStageSteps + step) * 512);
      const int piece = (step * 2 + lane() / 8 % 2) ^ (row % 8);
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        const uint4 b = load_matrices(x + n * 8 * 128 + piece * 16);
        mma(c[0][n], a0, b.x, b.y, T());
        mma(c[0][n + 1], a0, b.z, b.w, T());
        mma(c[1][n], a1, b.x, b.y, T());
        mma(c[1][n + 1], a1, b.z, b.w, T());
      }
    }
  }

  // Through shared memory, so that neighbouring threads write neighbouring columns.
  __device__ void write(const float (&totals)[2][kTiles][4]) const {
    float* sums = reinterpret_cast<float*>(shared);  // [kTokens][kSumPitch]
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int t = warp() % 2 * (kTokens / 2) + n * 8 + lane() % 4 * 2 + i % 2;
          const int column = (warp() / 2 * 2 + m) * 16 + lane() / 4 + i / 2 * 8;
          sums[t * kSumPitch + column] = totals[m][n][i];
        }
    __syncthreads();
    const int count = static_cast<int>(task.count);
    if (p.layout.interleaved) {
      constexpr int kColumns = kTilePanels * 8;
#pragma unroll 1
      for (int i = static_cast<int>(threadIdx.x); i < count * kColumns; i += kManyRowsThreads) {
        const int t = i / kColumns, column = i % kColumns;
        const float* gate = sums + t * kSumPitch + column / 16 * 32 + column % 16;
        finish_gated(p, task, task.first + t, first_panel * 8 + column, gate[0], gate[16]);
      }
      return;
    }
    constexpr int kColumns = kTilePanels * 16;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < count * kColumns; i += kManyRowsThreads) {
      const int t = i / kColumns, column = i % kColumns;
      finish(p, task, task.first + t, first_panel * 16 + column, sums[t * kSumPitch + column]);
    }
  }
};

// Not marked hot: Hopper's kernel takes these rows (linear_wgmma.cuh), and some block formats
// keep a register in memory here.
template <class T, CudaSource kSource, int kTokens>
__global__ void __launch_bounds__(kManyRowsThreads, kTokens == 64 ? 2 : 1)
    many_rows(const __grid_constant__ LinearCudaParams p, bool wide_x) {
  extern __shared__ __align__(128) char shared[];
  __shared__ float table[kSource == CudaSource::kTable4 ? 16 : 1];
  using Kernel = ManyRows<T, kSource, kTokens>;
  begin_dependent();
  Kernel kernel = {p,
                   shared,
                   find_task(p, kTokens),
                   static_cast<int>(blockIdx.y) * kTilePanels,
                   static_cast<int>(p.layout.padded_k() / 64),
                   wide_x};
  if (kernel.task.count <= 0) return;
  kernel.find_sources();
  kernel.table = table;
  if constexpr (kSource == CudaSource::kTable4) {
    fill_table<kSource>(p.layout, table);
    __syncthreads();
  }
  typename Kernel::Held held;
  if constexpr (Kernel::kBits != 0) kernel.ask_integers(0, held);
  for (int i = 0; i < kStages - 1; ++i) kernel.copy_stage(i, held);
  float c[2][Kernel::kTiles][4] = {}, totals[2][Kernel::kTiles][4] = {};
#pragma unroll 1
  for (int i = 0; i < kernel.stages; ++i) {
    wait_copies<kStages - 2>();
    __syncthreads();
    kernel.copy_stage(i + kStages - 1, held);
    kernel.multiply(i, c);
    if (i % kStagesPerChunk != kStagesPerChunk - 1 && i + 1 < kernel.stages) continue;
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < Kernel::kTiles; ++n)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          totals[m][n][j] += c[m][n][j];
          c[m][n][j] = 0;
        }
  }
  wait_copies<0>();
  __syncthreads();
  kernel.write(totals);
}

template <class T, CudaSource kSource, int kTokens>
void launch_many_rows(CudaStream stream, const LinearCudaParams& p) {
  const bool wide_x = p.layout.k % 8 == 0 && reinterpret_cast<uintptr_t>(p.x) % 16 == 0;
  const dim3 grid(blocks_for(p.rows, kTokens), blocks_for(p.layout.panels(), kTilePanels));
  launch("linear", stream, many_rows<T, kSource, kTokens>, grid, kManyRowsThreads,
         size_t{ManyRows<T, kSource, kTokens>::kSharedBytes}, p, wide_x);
}

// Large tiles where they keep all multiprocessors at work, and find the memory.
template <class T, CudaSource kSource>
void run_many_rows_of(CudaStream stream, const LinearCudaParams& p) {
  const int64_t blocks = (p.rows + 127) / 128 * ((p.layout.panels() + 7) / 8);
  const bool fits = size_t{ManyRows<T, kSource, 128>::kSharedBytes} <= cuda_traits().block_memory;
  if (p.rows > 64 && blocks >= 132 && fits) return launch_many_rows<T, kSource, 128>(stream, p);
  launch_many_rows<T, kSource, 64>(stream, p);
}

template <class T>
void run_many_rows_as(CudaStream stream, const LinearCudaParams& p) {
  if (p.layout.bits == 0) return run_many_rows_of<T, CudaSource::kDense>(stream, p);
  p.layout.bits == 4 ? run_many_rows_of<T, CudaSource::kAffine4>(stream, p)
                     : run_many_rows_of<T, CudaSource::kAffine8>(stream, p);
}

}  // namespace quire::ops
