#pragma once
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/tensor_map.h"
#include "ops/linear/cuda/linear_block_units.cuh"
#include "ops/linear/cuda/linear_kernels.cuh"

// linear() by Hopper's warpgroup products. A block has kPanels x 16 weights and kTokens tokens. One
// thread asks for stages of 64 k in shared memory; each warpgroup multiplies four panels by all
// tokens: weights go through registers, x is read where it lies. The chains are those of mma.sync,
// and so are the bits.
namespace quire::ops {
namespace wgmma {

inline constexpr int kStageK = 64, kStageSteps = 4;
inline constexpr int kStagesPerChunk = static_cast<int>(kLinearCudaChunk) / kStageK;

struct WgmmaSources {
  CUtensorMap x, weights, scales;  // scales: and biases, of quantised weights
};

template <class T, CudaSource kSource, int kGroups, int kTokens>
struct Wgmma {
  static constexpr int kBits = source_bits(kSource);
  static constexpr bool kInBlocks = is_in_blocks(kSource);
  static constexpr int kConsumers = kGroups * 128, kBringers = 128;
  static constexpr int kThreads = kConsumers + kBringers;
  static constexpr int kBlocks = kGroups == 1 ? 2 : 1;  // on a multiprocessor
  // Registers of a thread; it is launched with 168 or 128.
  static constexpr int kFewRegisters = 40, kManyRegisters = kGroups == 2 ? 232 : 208;
  static constexpr int kPanels = kGroups * 4;
  static constexpr int kPanelBytes = kBits == 0 ? 2048 : kBits * 128;  // of a stage
  static constexpr int kMostScaleBytes = kBits == 0 ? 0 : 256;         // of a panel and stage
  static constexpr int kXBytes = kTokens * 128;
  // x's rows are swizzled by address: stages begin at multiples of 1 KiB.
  static constexpr int kStageBytes =
      (kXBytes + kPanels * (kPanelBytes + kMostScaleBytes) + 1023) / 1024 * 1024;
  static constexpr int kFit = (225 / kBlocks - 2) * 1024 / kStageBytes;
  static constexpr int kStages = kFit < 8 ? kFit : 8;
  static constexpr int kSumPitch = kPanels * 16 + 4;
  static constexpr int kSumBytes = kTokens * kSumPitch * 4;
  static constexpr int kSharedBytes =
      1024 + (kStages * kStageBytes > kSumBytes ? kStages * kStageBytes : kSumBytes);

  const LinearCudaParams& p;
  const WgmmaSources& from;
  char* shared;      // [kStages][kStageBytes], at a multiple of 1 KiB
  Barrier* arrived;  // [kStages]: a stage is there
  Barrier* used;     // [kStages]: nobody reads it any more
  const float* table;
  LinearTask task;
  int first_panel, stages;

  __device__ char* stage(int index) const { return shared + index % kStages * kStageBytes; }
  __device__ static uint32_t round_of(int index) { return static_cast<uint32_t>(index / kStages); }

  // Bytes of scales of a panel and stage; those of a block come with both of its stages.
  __device__ int scale_bytes() const {
    if constexpr (kBits == 0) return 0;
    if constexpr (kInBlocks) return p.layout.block_scale_bytes;
    const int groups = max(1, kStageK / static_cast<int>(p.layout.group_size));
    return groups * 16 * static_cast<int>(p.layout.pair_bytes());
  }

  __device__ void copy_weights(int index) const {
    Barrier& barrier = arrived[index % kStages];
    char* to = stage(index) + kXBytes;
    barrier.expect_bytes(kXBytes + kPanels * (kPanelBytes + scale_bytes()));
    copy_tile(to, from.weights, index * (kPanelBytes / 8), first_panel, barrier);
    if constexpr (kInBlocks) {
      copy_tile(to + kPanels * kPanelBytes, from.scales, index / 2 * (scale_bytes() / 4),
                first_panel, barrier);
    } else if constexpr (kBits != 0) {
      const int group = index * kStageK / static_cast<int>(p.layout.group_size);
      copy_tile(to + kPanels * kPanelBytes, from.scales,
                group * 4 * static_cast<int>(p.layout.pair_bytes()), first_panel, barrier);
    }
  }

  // The work of one thread; weights are asked for before the kernels before this one have ended.
  __device__ void copy_first_weights() const {
    for (int i = 0; i < min(kStages, stages); ++i) copy_weights(i);
  }
  __device__ void copy_stages() const {
#pragma unroll 1
    for (int i = 0; i < stages; ++i) {
      if (i >= kStages) {
        used[i % kStages].wait(round_of(i) - 1);
        copy_weights(i);
      }
      copy_tile(stage(i), from.x, i * kStageK, static_cast<int>(task.first), arrived[i % kStages]);
    }
  }

  // The weights of a lane for one stage, as A of four steps.
  __device__ void load_weights(int index, uint4 (&a)[kStageSteps]) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, panel = static_cast<int>(threadIdx.x) / 32;
    const char* weights = stage(index) + kXBytes + panel * kPanelBytes + lane * 16;
    if constexpr (kInBlocks) {
      uint32_t words[kBits];
      load_stage(weights - lane * 16, LoadShared(), words);
      const char* scales = stage(index) + kXBytes + kPanels * kPanelBytes + panel * scale_bytes();
      dequantise_stage<kSource, T>(p.layout, words, scales, index % 2, table, a);
    } else if constexpr (kBits == 0) {
#pragma unroll
      for (int step = 0; step < kStageSteps; ++step)
        a[step] = *reinterpret_cast<const uint4*>(weights + step * 512);
    } else {
      const char* pairs = stage(index) + kXBytes + kPanels * kPanelBytes + panel * scale_bytes();
      const int row_bytes = static_cast<int>(p.layout.pair_bytes());
      const int next = p.layout.group_size == 32 ? 16 * row_bytes : 0;  // of the other 32 k
      uint4 values[kBits / 4];
#pragma unroll
      for (int i = 0; i < kBits / 4; ++i)
        values[i] = *reinterpret_cast<const uint4*>(weights + i * 512);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const char* at = pairs + half * next + lane / 4 * row_bytes;
        const ScaleAndBias s0 = split_pair(at, p.layout.scale_type);
        const ScaleAndBias s1 = split_pair(at + 8 * row_bytes, p.layout.scale_type);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int step = half * 2 + i;
          if constexpr (kBits == 4)
            a[step] = dequantise<4, T>(word_of(values[0], step), 0, s0, s1);
          else
            a[step] = dequantise<8, T>(word_of(values[half], i * 2),
                                       word_of(values[half], i * 2 + 1), s0, s1);
        }
      }
    }
  }

  // A warp has read a stage.
  __device__ void release(int index) const {
    if (threadIdx.x % 32 == 0) used[index % kStages].arrive();
  }

  // All stages: the warp's panel times all tokens.
  __device__ void multiply(float (&totals)[kTokens / 2]) const {
    float c[kTokens / 2];
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) totals[i] = c[i] = 0;
#pragma unroll 1
    for (int first = 0; first < stages; first += kStagesPerChunk) {
      uint4 a[2][kStageSteps];
#pragma unroll
      for (int i = 0; i < kStagesPerChunk; ++i) {
        if (first + i >= stages) break;
        arrived[(first + i) % kStages].wait(round_of(first + i));
        load_weights(first + i, a[i % 2]);
        begin_group_products(c);
        const uint64_t x = swizzled_matrix(stage(first + i));
#pragma unroll
        for (int step = 0; step < kStageSteps; ++step)
          group_product(c, a[i % 2][step], x + step * 2, i + step > 0, T());
        commit_group_products();
        if (i == 0) continue;
        wait_group_products<1>(c);
        release(first + i - 1);
      }
      wait_group_products<0>(c);
      release(min(first + kStagesPerChunk, stages) - 1);
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i) totals[i] += c[i];
    }
  }

  // Through shared memory, so that neighbouring threads write neighbouring columns.
  __device__ void write(const float (&totals)[kTokens / 2]) const {
    float* sums = reinterpret_cast<float*>(shared);  // [kTokens][kSumPitch]
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
    float* to = sums + lane % 4 * 2 * kSumPitch + thread / 32 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i)
      to[(i / 4 * 8 + i % 2) * kSumPitch + i / 2 % 2 * 8] = totals[i];
    sync_threads<1>(kConsumers);
    const int count = static_cast<int>(task.count);
    const bool gated = p.layout.interleaved;
    const int pieces = kPanels * (gated ? 1 : 2);  // of eight columns, of a token
#pragma unroll 1
    for (int i = thread; i < count * pieces; i += kConsumers) {
      const int t = i / pieces, piece = i % pieces;
      const float* row = sums + t * kSumPitch;
      if (gated) {
        const float* gates = row + piece / 2 * 32 + piece % 2 * 8;
        finish_gated8(p, task, task.first + t, first_panel * 8 + piece * 8, gates, gates + 16);
      } else {
        finish8(p, task, task.first + t, first_panel * 16 + piece * 8, row + piece * 8);
      }
    }
  }
};

template <class T, CudaSource kSource, int kGroups, int kTokens>
__global__ void __launch_bounds__(Wgmma<T, kSource, kGroups, kTokens>::kThreads,
                                  Wgmma<T, kSource, kGroups, kTokens>::kBlocks)
    hot_wgmma(const __grid_constant__ LinearCudaParams p,
              const __grid_constant__ WgmmaSources from) {
  extern __shared__ char unaligned[];
  using Kernel = Wgmma<T, kSource, kGroups, kTokens>;
  __shared__ Barrier arrived[Kernel::kStages], used[Kernel::kStages];
  __shared__ float table[kSource == CudaSource::kTable4 ? 16 : 1];
  const Kernel kernel = {p,
                         from,
                         unaligned + (1024 - shared_address(unaligned) % 1024) % 1024,
                         arrived,
                         used,
                         table,
                         find_task(p, kTokens),
                         static_cast<int>(blockIdx.y) * Kernel::kPanels,
                         static_cast<int>(p.layout.padded_k() / kStageK)};
  fill_table<kSource>(p.layout, table);
  const bool copies = threadIdx.x == Kernel::kConsumers;
  if (copies) {
    for (int i = 0; i < Kernel::kStages; ++i) {
      arrived[i].init(1);
      used[i].init(kGroups * 4);
    }
    publish_barriers();
    kernel.copy_first_weights();
  }
  __syncthreads();
  begin_dependent();
  if (threadIdx.x >= Kernel::kConsumers) {
    give_registers<Kernel::kFewRegisters>();
    if (copies) kernel.copy_stages();
    return;
  }
  take_registers<Kernel::kManyRegisters>();
  float totals[kTokens / 2];
  kernel.multiply(totals);
  sync_threads<1>(Kernel::kConsumers);  // nobody reads the stages any more
  kernel.write(totals);
}

template <class T, CudaSource kSource, int kGroups, int kTokens>
void launch_wgmma(CudaStream stream, const LinearCudaParams& p) {
  using Kernel = Wgmma<T, kSource, kGroups, kTokens>;
  const CudaWeightLayout& l = p.layout;
  WgmmaSources from;
  from.x = tensor_map({.type = CU_TENSOR_MAP_DATA_TYPE_UINT16,
                       .data = p.x,
                       .rows = p.rows,
                       .columns = l.k,
                       .pitch = l.k * 2,
                       .tile_rows = kTokens,
                       .tile_columns = kStageK,
                       .swizzled = true});
  from.weights = tensor_map({.type = CU_TENSOR_MAP_DATA_TYPE_UINT64,
                             .data = p.w,
                             .rows = l.panels(),
                             .columns = l.panel_bytes() / 8,
                             .pitch = l.panel_bytes(),
                             .tile_rows = Kernel::kPanels,
                             .tile_columns = Kernel::kPanelBytes / 8});
  if constexpr (Kernel::kBits != 0) {
    const int64_t groups = l.group_size < kStageK ? kStageK / l.group_size : 1;
    from.scales = tensor_map({.type = CU_TENSOR_MAP_DATA_TYPE_UINT32,
                              .data = static_cast<const char*>(p.w) + l.scales_offset(),
                              .rows = l.panels(),
                              .columns = l.panel_scale_bytes() / 4,
                              .pitch = l.panel_scale_bytes(),
                              .tile_rows = Kernel::kPanels,
                              .tile_columns = Kernel::kInBlocks
                                                  ? l.block_scale_bytes / 4
                                                  : static_cast<int>(groups * 4 * l.pair_bytes())});
  }
  const dim3 grid(blocks_for(p.rows, kTokens), blocks_for(l.panels(), Kernel::kPanels));
  launch("linear", stream, hot_wgmma<T, kSource, kGroups, kTokens>, grid, Kernel::kThreads,
         size_t{Kernel::kSharedBytes}, p, from);
}

// Whether all blocks of four panels and so many tokens run at once.
inline bool is_one_wave(const LinearCudaParams& p, int64_t tokens) {
  return (p.rows + tokens - 1) / tokens * ((p.layout.panels() + 3) / 4) <= 2 * 132;
}

// The smallest tiles of which all run at once, or large ones.
template <class T, CudaSource kSource>
void run(CudaStream stream, const LinearCudaParams& p) {
  if (p.rows <= 8) return launch_wgmma<T, kSource, 1, 8>(stream, p);
  if (p.rows <= 32 || is_one_wave(p, 32)) return launch_wgmma<T, kSource, 1, 32>(stream, p);
  if (p.rows <= 64 || is_one_wave(p, 64)) return launch_wgmma<T, kSource, 1, 64>(stream, p);
  launch_wgmma<T, kSource, 2, 128>(stream, p);
}

}  // namespace wgmma
}  // namespace quire::ops
