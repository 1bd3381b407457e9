#pragma once
#include <algorithm>

#include "ops/cuda/reduce.cuh"
#include "ops/linear/cuda/linear_block_units.cuh"
#include "ops/linear/cuda/linear_few_rows_plan.h"
#include "ops/linear/cuda/linear_kernels.cuh"

// linear() for few rows: what counts is the rate at which weights arrive. A block has some panels
// and up to 32 tokens; its 8 warps take the chunks of K in rounds, the sums of a round meet in
// shared memory and are added in ascending order.
namespace quire::ops {

inline constexpr int kFewRowsThreads = 256;

template <class T, CudaSource kSource, int kTiles>
struct FewRows {
  const LinearCudaParams& p;
  const FewRowsPlan& plan;
  T* x;          // [x_buffers][kTiles * 8][pitch]
  float* part;   // [2][panels][chunk_warps][kTiles][128]
  char* scales;  // [8 warps][kUnitScales], of quantised weights
  const float* table;
  float* squares;  // [8 tokens][8 warps], where x is normed on its way
  float* norm;     // [8 * kFewRowsThreads], in the place of `part`, before that is used
  LinearTask task;
  int first_panel, chunks;

  static constexpr int kPanelSums = kTiles * 128;
  static constexpr int kMostTotals = 4 * kTiles;  // of a thread: 8 panels

  __device__ int chunk_warp() const {
    return static_cast<int>(threadIdx.x) / 32 & (plan.chunk_warps() - 1);
  }
  __device__ int panel_group() const {
    return static_cast<int>(threadIdx.x) / 32 >> plan.chunk_warps_log;
  }
  __device__ T* x_buffer(int round) const {
    return x + (plan.x_buffers == 2 && round % 2 != 0 ? kTiles * 8 * plan.pitch() : 0);
  }
  __device__ float* part_buffer(int round) const {
    return part + round % 2 * plan.panels() * plan.chunk_warps() * kPanelSums;
  }

  // Whether this block norms the rows that it reads. Many blocks would repeat it for many rows.
  __device__ bool norms() const { return kTiles == 1 && p.norm_weight != nullptr; }

  // Whether the block norms one row of which each thread has eight columns. Their weights are asked
  // for before the row is there.
  __device__ bool norms_one_row() const {
    return norms() && task.count == 1 && p.layout.k <= plan.chunk_warps() * kLinearCudaChunk &&
           plan.wide_norm;
  }
  __device__ void ask_norm() const {
    const int64_t at = int64_t{threadIdx.x} * 8;
    const bool exists = at < p.layout.k;
#pragma unroll
    for (int i = 0; i < 8; i += 4)
      copy_async(norm + at + i, exists ? p.norm_weight + at + i : p.norm_weight, exists ? 16 : 0);
    commit_copies();
  }
  __device__ void load_one_row() const {
    const int64_t at = int64_t{threadIdx.x} * 8;
    float v[8], weight[8];
    load_some8(static_cast<const T*>(p.x) + task.first * p.layout.k, at, p.layout.k, plan.wide_x,
               v);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(v[i], v[i], sum);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) squares[threadIdx.x / 32] = sum;
    wait_copies<0>();
    __syncthreads();
    if (at >= plan.chunk_warps() * kLinearCudaChunk) return;
    const float scale = norm_scale(0);
    load8(norm + at, weight);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = v[i] * scale * weight[i];
    store8(x + at, v);
  }

  // Sums of each token's squares, in the order of all norms (reduce.cuh).
  __device__ void add_squares() const {
    static_assert(kFewRowsThreads == kNormLanes);
    const int64_t k = p.layout.k;
    for (int t = 0; t < task.count; ++t) {
      const T* row = static_cast<const T*>(p.x) + (task.first + t) * k;
      float sum = 0;
      for (int64_t at = threadIdx.x * 8; at < k; at += kNormLanes * 8) {
        float v[8];
        load_some8(row, at, k, plan.wide_x, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum = fmaf(v[i], v[i], sum);
      }
      sum = warp_sum(sum);
      if (threadIdx.x % 32 == 0) squares[t * 8 + threadIdx.x / 32] = sum;
    }
    __syncthreads();
  }
  __device__ float norm_scale(int t) const {
    float total = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) total += squares[t * 8 + i];
    return inverse_rms(total, p.layout.k, p.norm_eps);
  }
  // Eight columns, rounded as a norm that is a kernel of its own would store them.
  __device__ void load_normed(int t, int64_t at, T* out) const {
    const int64_t k = p.layout.k;
    float v[8] = {}, weight[8] = {};
    if (at < k) {
      load_some8(static_cast<const T*>(p.x) + (task.first + t) * k, at, k, plan.wide_x, v);
      load_some8(p.norm_weight, at, k, plan.wide_norm, weight);
    }
    const float scale = norm_scale(t);
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = narrow<T>(v[i] * scale * weight[i]);
  }

  // A round's columns of the block's tokens, zeros beyond K.
  __device__ void load_x(int round) const {
    const int pieces = plan.chunk_warps() * 32, shift = plan.chunk_warps_log + 5;
    const int64_t first_k = int64_t{round} * plan.chunk_warps() * kLinearCudaChunk;
    const int64_t k = p.layout.k;
    T* to = x_buffer(round);
    for (int i = static_cast<int>(threadIdx.x); i < task.count * pieces; i += kFewRowsThreads) {
      const int t = i >> shift, piece = i & (pieces - 1);
      const int64_t at = first_k + piece * 8;
      const T* from = static_cast<const T*>(p.x) + row_of_x(p, task.first + t) * k;
      T* out = to + t * plan.pitch() + piece * 8;
      if (norms()) {
        load_normed(t, at, out);
      } else if (plan.wide_x) {
        copy_async(out, at < k ? from + at : from, at < k ? 16 : 0);
      } else {
        for (int j = 0; j < 8; ++j) out[j] = at + j < k ? from[at + j] : narrow<T>(0.0f);
      }
    }
    commit_copies();
  }

  // Unit u of a warp: its panels in turn, then the next round.
  __device__ UnitSource source(int unit) const {
    const int panel = panel_of(unit);
    const int chunk = (unit >> plan.panels_per_warp_log) * plan.chunk_warps() + chunk_warp();
    if (chunk >= chunks || panel >= p.layout.panels()) return {};
    return unit_source<kSource>(p.layout, task.w, panel, chunk);
  }
  __device__ int panel_of(int unit) const {
    return first_panel + (panel_group() << plan.panels_per_warp_log) +
           (unit & (plan.panels_per_warp() - 1));
  }

  // Prefetches the weights behind the warp's first, which take their place in registers once x is
  // there.
  __device__ void prefetch_second() const {
    const UnitSource second = source(1);
#pragma unroll
    for (int i = 0; i < UnitWeights<kSource>::kLoads; ++i)
      if (i < second.loads) prefetch_l2(second.values + i * 32);
  }

  __device__ void compute(int round, UnitWeights<kSource>& w) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const bool has_chunk = round * plan.chunk_warps() + chunk_warp() < chunks;
#pragma unroll 1
    for (int i = 0; i < plan.panels_per_warp() && has_chunk; ++i) {
      const UnitSource next = source((round << plan.panels_per_warp_log) + i + 1);
      float c[kTiles][4];
      run_unit<kSource, T, kTiles>(p.layout, w, next, x_buffer(round) + chunk_warp() * 256,
                                   plan.pitch(), {scales + threadIdx.x / 32 * kUnitScales, table},
                                   c);
      const int panel = (panel_group() << plan.panels_per_warp_log) + i;
      float* to =
          part_buffer(round) + (panel * plan.chunk_warps() + chunk_warp()) * kPanelSums + lane * 4;
#pragma unroll
      for (int n = 0; n < kTiles; ++n)
        *reinterpret_cast<float4*>(to + n * 128) = make_float4(c[n][0], c[n][1], c[n][2], c[n][3]);
    }
  }

  // Output i of the thread: a column of the block (of a gated weight, of its halves) and a token.
  struct Output {
    int column, t;
    bool exists;
  };
  __device__ Output output(int i) const {
    const bool gated = p.layout.interleaved;
    const int columns_log = plan.panels_log() + (gated ? 3 : 4);
    const int at = static_cast<int>(threadIdx.x) + (gated ? i / 2 : i) * kFewRowsThreads;
    const int t = at >> columns_log;
    return {at & ((1 << columns_log) - 1), t, t < task.count};
  }
  // Where a panel's sum of (weight row, token) lies.
  __device__ static int sum_index(int row, int t) {
    return t / 8 * 128 + (row % 8 * 4 + t % 8 / 2) * 4 + row / 8 * 2 + t % 2;
  }

  // Adds a round's sums to the thread's totals: of a gated weight, a gate's and its up's in turn.
  __device__ void fold(int round, float (&totals)[kMostTotals]) const {
    const int count = min(plan.chunk_warps(), chunks - round * plan.chunk_warps());
    const bool gated = p.layout.interleaved;
#pragma unroll
    for (int i = 0; i < kMostTotals; ++i) {
      const Output out = output(i);
      if (!out.exists) break;
      const int panel = gated ? out.column / 16 * 2 + i % 2 : out.column / 16;
      const float* sums = part_buffer(round) + panel * plan.chunk_warps() * kPanelSums +
                          sum_index(out.column % 16, out.t);
#pragma unroll
      for (int first = 0; first < 8; first += 4) {
        float some[4];
#pragma unroll
        for (int c = 0; c < 4; ++c)
          if (first + c < count) some[c] = sums[(first + c) * kPanelSums];
#pragma unroll
        for (int c = 0; c < 4; ++c)
          if (first + c < count) totals[i] += some[c];
      }
    }
  }

  // The residual at the thread's first output, asked for before the sums are there.
  __device__ float ask_residual() const {
    const Output out = output(0);
    const int64_t column = first_panel * 16 + out.column;
    if (p.residual == nullptr || !out.exists || column >= p.layout.n) return 0;
    return load_as(p.out_type, p.residual, (task.first + out.t) * p.y_pitch + column);
  }

  __device__ void write(const float (&totals)[kMostTotals], float residual) const {
    const bool gated = p.layout.interleaved;
#pragma unroll
    for (int i = 0; i < kMostTotals; ++i) {
      const Output out = output(i);
      if (!out.exists) break;
      const int64_t row = task.first + out.t;
      if (!gated) {
        const int64_t column = first_panel * 16 + out.column;
        if (i == 0)
          finish(p, task, row, column, totals[i], residual);
        else
          finish(p, task, row, column, totals[i]);
      } else if (i % 2 == 0) {
        finish_gated(p, task, row, first_panel * 8 + out.column, totals[i], totals[i + 1]);
      }
    }
  }
};

template <class T, CudaSource kSource, int kTiles>
__device__ __forceinline__ void multiply_few_rows(const LinearCudaParams& p,
                                                  const FewRowsPlan& plan) {
  extern __shared__ __align__(128) char shared[];
  __shared__ float squares[kTiles == 1 ? 64 : 1];
  __shared__ float table[kSource == CudaSource::kTable4 ? 16 : 1];
  using Kernel = FewRows<T, kSource, kTiles>;
  T* x = reinterpret_cast<T*>(shared);
  float* part = reinterpret_cast<float*>(x + plan.x_buffers * kTiles * 8 * plan.pitch());
  char* scales =
      reinterpret_cast<char*>(part + 2 * plan.panels() * plan.chunk_warps() * Kernel::kPanelSums);
  fill_table<kSource>(p.layout, table);
  allow_dependent();
  if (p.tiles != nullptr) wait_for_kernels_before();
  const Kernel kernel = {p,
                         plan,
                         x,
                         part,
                         scales,
                         table,
                         squares,
                         part,
                         find_task(p, kTiles * 8),
                         static_cast<int>(blockIdx.y) * plan.panels(),
                         static_cast<int>((p.layout.k + kLinearCudaChunk - 1) / kLinearCudaChunk)};
  if (kernel.task.count <= 0) return;
  UnitWeights<kSource> w;
  const UnitSource first = kernel.source(0);
  ask_pairs(w, first);
#pragma unroll
  for (int i = 0; i < UnitWeights<kSource>::kLoads; ++i) ask_value(w, first, i);
  kernel.prefetch_second();
  const int rounds = (kernel.chunks + plan.chunk_warps() - 1) >> plan.chunk_warps_log;
  if (kernel.norms_one_row()) kernel.ask_norm();
  if (p.tiles == nullptr) wait_for_kernels_before();

  float totals[Kernel::kMostTotals] = {};
  const float residual = kernel.ask_residual();
  if (kernel.norms_one_row()) {
    kernel.load_one_row();
  } else {
    if (kernel.norms()) kernel.add_squares();
    kernel.load_x(0);
  }
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    wait_copies<0>();
    __syncthreads();
    if (plan.x_buffers == 2 && round + 1 < rounds) kernel.load_x(round + 1);
    if (round > 0) kernel.fold(round - 1, totals);
    kernel.compute(round, w);
    if (plan.x_buffers == 1 && round + 1 < rounds) {
      __syncthreads();
      kernel.load_x(round + 1);
    }
  }
  __syncthreads();
  kernel.fold(rounds - 1, totals);
  kernel.write(totals, residual);
}

template <class T, CudaSource kSource, int kTiles>
__global__ void __launch_bounds__(kFewRowsThreads, kTiles == 4 ? 1 : 2)
    hot_few_rows(const __grid_constant__ LinearCudaParams p,
                 const __grid_constant__ FewRowsPlan plan) {
  multiply_few_rows<T, kSource, kTiles>(p, plan);
}

// Not marked hot: two tiles of affine weights of 8 bits keep some registers in memory.
template <CudaSource kSource, int kTiles>
constexpr bool kFewRowsSpill = kSource == CudaSource::kAffine8 && kTiles == 2;
template <class T, CudaSource kSource, int kTiles>
__global__ void __launch_bounds__(kFewRowsThreads, 2)
    few_rows(const __grid_constant__ LinearCudaParams p, const __grid_constant__ FewRowsPlan plan) {
  multiply_few_rows<T, kSource, kTiles>(p, plan);
}

template <class T, CudaSource kSource, int kTiles>
constexpr auto few_rows_kernel() {
  if constexpr (kFewRowsSpill<kSource, kTiles>)
    return few_rows<T, kSource, kTiles>;
  else
    return hot_few_rows<T, kSource, kTiles>;
}

template <CudaSource kSource, int kTiles>
constexpr size_t few_rows_bytes(const FewRowsPlan& plan) {
  const size_t x_bytes = size_t{2} * plan.x_buffers * kTiles * 8 * plan.pitch();
  const size_t part_bytes = size_t{4} * 2 * plan.panels() * plan.chunk_warps() * kTiles * 128;
  return x_bytes + part_bytes + (source_bits(kSource) != 0 ? 8 * kUnitScales : 0);
}

// The most that any product asks for with one tile of tokens; from 5 chunks on plans are the same.
template <CudaSource kSource>
constexpr size_t most_few_rows_bytes() {
  size_t most = 0;
  for (int64_t chunks = 1; chunks <= 5; ++chunks)
    for (const bool interleaved : {false, true}) {
      const size_t bytes = few_rows_bytes<kSource, 1>(
          few_rows_plan(chunks * kLinearCudaChunk, interleaved, /*tiles=*/1));
      if (bytes > most) most = bytes;
    }
  return most;
}

// Where a block has less memory than on Hopper, it has one buffer of x, or fewer tokens. What one
// tile of tokens takes, every GPU has.
template <class T, CudaSource kSource, int kTiles>
void launch_few_rows(CudaStream stream, const LinearCudaParams& p) {
  static_assert(most_few_rows_bytes<kSource>() <= kLeastBlockMemory - kFixedBlockMemory);
  FewRowsPlan plan = few_rows_plan(p.layout.k, p.layout.interleaved, kTiles);
  plan.wide_x = is_wide(p.x, p.layout.k);
  plan.wide_norm = is_wide(p.norm_weight, p.layout.k);
  const auto fits = [&] {
    return few_rows_bytes<kSource, kTiles>(plan) <= cuda_traits().block_memory;
  };
  if constexpr (kTiles > 1) {
    if (!fits()) plan.x_buffers = 1;
    if (!fits()) return launch_few_rows<T, kSource, kTiles / 2>(stream, p);
  }
  const auto tiles =
      p.tiles != nullptr ? static_cast<unsigned>(p.max_tiles) : blocks_for(p.rows, kTiles * 8);
  const dim3 grid(tiles, blocks_for(p.layout.panels(), plan.panels()));
  launch("linear", stream, few_rows_kernel<T, kSource, kTiles>(), grid, kFewRowsThreads,
         few_rows_bytes<kSource, kTiles>(plan), p, plan);
}

template <class T, CudaSource kSource>
void run_few_rows_of(CudaStream stream, const LinearCudaParams& p) {
  if (p.tiles != nullptr || p.rows <= 8) return launch_few_rows<T, kSource, 1>(stream, p);
  if (p.rows <= 16) return launch_few_rows<T, kSource, 2>(stream, p);
  launch_few_rows<T, kSource, 4>(stream, p);
}

template <class T>
void run_few_rows(CudaStream stream, const LinearCudaParams& p) {
  if (p.layout.bits == 0) return run_few_rows_of<T, CudaSource::kDense>(stream, p);
  p.layout.bits == 4 ? run_few_rows_of<T, CudaSource::kAffine4>(stream, p)
                     : run_few_rows_of<T, CudaSource::kAffine8>(stream, p);
}

}  // namespace quire::ops
