#pragma once
#include <algorithm>

#include "ops/cuda/reduce.cuh"
#include "ops/linear/linear_block_units.cuh"
#include "ops/linear/linear_few_rows_plan.cuh"
#include "ops/linear/linear_kernels.cuh"

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

  // Adds a round's sums to the thread's totals.
  __device__ void fold(int round, float (&totals)[kMostTotals]) const {
    const int count = min(plan.chunk_warps(), chunks - round * plan.chunk_warps());
    const float* from = part_buffer(round);
#pragma unroll
    for (int i = 0; i < kMostTotals; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * kFewRowsThreads;
      if (at >= plan.panels() * kPanelSums) break;
      const float* sums =
          from + at / kPanelSums * plan.chunk_warps() * kPanelSums + at % kPanelSums;
#pragma unroll 1
      for (int c = 0; c < count; ++c) totals[i] += sums[c * kPanelSums];
    }
  }

  // Where a panel's sum of (weight row, token) lies.
  __device__ static int sum_index(int row, int t) {
    return t / 8 * 128 + (row % 8 * 4 + t % 8 / 2) * 4 + row / 8 * 2 + t % 2;
  }

  __device__ void write(const float (&totals)[kMostTotals]) const {
    float* sums = reinterpret_cast<float*>(x);  // no longer in use
#pragma unroll
    for (int i = 0; i < kMostTotals; ++i) {
      const int at = static_cast<int>(threadIdx.x) + i * kFewRowsThreads;
      if (at < plan.panels() * kPanelSums) sums[at] = totals[i];
    }
    __syncthreads();
    const bool gated = p.layout.interleaved;
    const int columns = plan.panels() * (gated ? 8 : 16);
    for (int i = static_cast<int>(threadIdx.x); i < columns * task.count; i += kFewRowsThreads) {
      const int column = i % columns, t = i / columns, at = sum_index(column % 16, t);
      const float* panel = sums + column / 16 * (gated ? 2 : 1) * kPanelSums;
      if (gated)
        finish_gated(p, task, task.first + t, first_panel * 8 + column, panel[at],
                     panel[kPanelSums + at]);
      else
        finish(p, task, task.first + t, first_panel * 16 + column, panel[at]);
    }
  }
};

template <class T, CudaSource kSource, int kTiles>
__global__ void __launch_bounds__(kFewRowsThreads, kTiles == 4 ? 1 : 2)
    few_rows(const __grid_constant__ LinearCudaParams p, const __grid_constant__ FewRowsPlan plan) {
  extern __shared__ __align__(128) char shared[];
  __shared__ float squares[kTiles == 1 ? 64 : 1];
  __shared__ float table[kSource == CudaSource::kTable4 ? 16 : 1];
  using Kernel = FewRows<T, kSource, kTiles>;
  T* x = reinterpret_cast<T*>(shared);
  float* part = reinterpret_cast<float*>(x + plan.x_buffers * kTiles * 8 * plan.pitch());
  char* scales =
      reinterpret_cast<char*>(part + 2 * plan.panels() * plan.chunk_warps() * Kernel::kPanelSums);
  fill_table<kSource>(p.layout, table);
  if (p.tiles != nullptr) begin_dependent();
  const Kernel kernel = {p,
                         plan,
                         x,
                         part,
                         scales,
                         table,
                         squares,
                         find_task(p, kTiles * 8),
                         static_cast<int>(blockIdx.y) * plan.panels(),
                         static_cast<int>((p.layout.k + kLinearCudaChunk - 1) / kLinearCudaChunk)};
  if (kernel.task.count <= 0) return;
  UnitWeights<kSource> w;
  const UnitSource first = kernel.source(0);
  ask_pairs(w, first);
#pragma unroll
  for (int i = 0; i < UnitWeights<kSource>::kLoads; ++i) ask_value(w, first, i);
  if (p.tiles == nullptr) begin_dependent();

  float totals[Kernel::kMostTotals] = {};
  const int rounds = (kernel.chunks + plan.chunk_warps() - 1) >> plan.chunk_warps_log;
  if (kernel.norms()) kernel.add_squares();
  kernel.load_x(0);
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
  kernel.write(totals);
}

template <class T, CudaSource kSource, int kTiles>
void launch_few_rows(CudaStream stream, const LinearCudaParams& p) {
  const FewRowsPlan plan = few_rows_plan(p, kTiles);
  const size_t x_bytes = size_t{2} * plan.x_buffers * kTiles * 8 * plan.pitch();
  const size_t part_bytes = size_t{4} * 2 * plan.panels() * plan.chunk_warps() * kTiles * 128;
  const auto tiles =
      p.tiles != nullptr ? static_cast<unsigned>(p.max_tiles) : blocks_for(p.rows, kTiles * 8);
  const dim3 grid(tiles, blocks_for(p.layout.panels(), plan.panels()));
  launch("linear", stream, few_rows<T, kSource, kTiles>, grid, kFewRowsThreads,
         x_bytes + part_bytes + (source_bits(kSource) != 0 ? 8 * kUnitScales : 0), p, plan);
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
