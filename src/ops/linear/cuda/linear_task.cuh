#pragma once
#include "ops/cuda/floats.cuh"
#include "ops/cuda/gate.cuh"
#include "ops/linear/cuda/linear_cuda.h"

// What the kernels of linear() share: which rows and weight a block works on, and what becomes of
// its sums.
namespace quire::ops {

struct LinearTask {
  const void* w = nullptr;
  const float* bias = nullptr;
  int64_t first = 0;  // row of y
  int64_t count = 0;  // 0: nothing to do
};

// The block's task: tile blockIdx.x, of `tile_rows` rows unless tiles are listed.
__device__ inline LinearTask find_task(const LinearCudaParams& p, int64_t tile_rows) {
  if (p.tiles == nullptr) {
    const int64_t first = blockIdx.x * tile_rows;
    return {p.w, p.bias, first, min(tile_rows, p.rows - first)};
  }
  if (static_cast<int32_t>(blockIdx.x) >= *p.num_tiles) return {};
  const LinearCudaTile tile = p.tiles[blockIdx.x];
  return {p.expert_weights[tile.expert],
          p.expert_biases != nullptr ? p.expert_biases[tile.expert] : nullptr, tile.first,
          tile.count};
}

__device__ inline int64_t row_of_x(const LinearCudaParams& p, int64_t row) {
  return p.x_rows != nullptr ? p.x_rows[row] : row;
}

__device__ inline float round_to(FloatType type, float v) {
  switch (type) {
    case FloatType::kF16:
      return rounded<DeviceF16>(v);
    case FloatType::kBf16:
      return rounded<DeviceBf16>(v);
    case FloatType::kF32:
      break;
  }
  return v;
}
__device__ inline float load_as(FloatType type, const void* p, int64_t at) {
  switch (type) {
    case FloatType::kF16:
      return widen(static_cast<const DeviceF16*>(p)[at]);
    case FloatType::kBf16:
      return widen(static_cast<const DeviceBf16*>(p)[at]);
    case FloatType::kF32:
      break;
  }
  return static_cast<const float*>(p)[at];
}
__device__ inline void store_as(FloatType type, void* p, int64_t at, float v) {
  switch (type) {
    case FloatType::kF16:
      static_cast<DeviceF16*>(p)[at] = narrow<DeviceF16>(v);
      return;
    case FloatType::kBf16:
      static_cast<DeviceBf16*>(p)[at] = narrow<DeviceBf16>(v);
      return;
    case FloatType::kF32:
      static_cast<float*>(p)[at] = v;
  }
}

// Output `column` of row `row` from its sum, and the residual there if there is one.
__device__ inline void finish(const LinearCudaParams& p, const LinearTask& task, int64_t row,
                              int64_t column, float sum, float residual) {
  if (column >= p.layout.n) return;
  if (task.bias != nullptr) sum += task.bias[column];
  if (p.residual != nullptr) sum = round_to(p.out_type, sum) + residual;
  store_as(p.out_type, p.y, row * p.y_pitch + column, sum);
}
__device__ inline void finish(const LinearCudaParams& p, const LinearTask& task, int64_t row,
                              int64_t column, float sum) {
  if (column >= p.layout.n) return;
  const bool has = p.residual != nullptr;
  finish(p, task, row, column, sum,
         has ? load_as(p.out_type, p.residual, row * p.y_pitch + column) : 0.0f);
}
// The same of an interleaved weight: `column` of N / 2.
__device__ inline void finish_gated(const LinearCudaParams& p, const LinearTask& task, int64_t row,
                                    int64_t column, float gate, float up) {
  const int64_t half = p.layout.n / 2;
  if (column >= half) return;
  if (task.bias != nullptr) {
    gate += task.bias[column];
    up += task.bias[half + column];
  }
  store_as(p.out_type, p.y, row * p.y_pitch + column,
           apply_gate(p.gate, round_to(p.out_type, gate), round_to(p.out_type, up)));
}

// Eight neighbouring outputs of a row from their sums, where 16 bytes can be read and written at
// once in one step.
__device__ inline bool finishes_wide(const LinearCudaParams& p, int64_t width, int64_t column) {
  return width % 8 == 0 && p.y_pitch % 8 == 0 && column < width &&
         reinterpret_cast<uintptr_t>(p.y) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(p.residual) % 16 == 0;
}
template <class T>
__device__ inline void finish_wide(const LinearCudaParams& p, const LinearTask& task, int64_t row,
                                   int64_t column, const float* sums) {
  const int64_t at = row * p.y_pitch + column;
  float v[8], residual[8];
  load8(sums, v);
  if (p.residual != nullptr) load8(static_cast<const T*>(p.residual) + at, residual);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (task.bias != nullptr) v[i] += task.bias[column + i];
    if (p.residual != nullptr) v[i] = rounded<T>(v[i]) + residual[i];
  }
  store8(static_cast<T*>(p.y) + at, v);
}
template <class T>
__device__ inline void finish_gated_wide(const LinearCudaParams& p, const LinearTask& task,
                                         int64_t row, int64_t column, const float* gates,
                                         const float* ups) {
  const int64_t half = p.layout.n / 2;
  float gate[8], up[8];
  load8(gates, gate);
  load8(ups, up);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (task.bias != nullptr) {
      gate[i] += task.bias[column + i];
      up[i] += task.bias[half + column + i];
    }
    gate[i] = apply_gate(p.gate, rounded<T>(gate[i]), rounded<T>(up[i]));
  }
  store8(static_cast<T*>(p.y) + row * p.y_pitch + column, gate);
}

// `sums` is aligned to 16 bytes.
__device__ inline void finish8(const LinearCudaParams& p, const LinearTask& task, int64_t row,
                               int64_t column, const float* sums) {
  if (!finishes_wide(p, p.layout.n, column)) {
    for (int i = 0; i < 8; ++i) finish(p, task, row, column + i, sums[i]);
    return;
  }
  switch (p.out_type) {
    case FloatType::kF16:
      return finish_wide<DeviceF16>(p, task, row, column, sums);
    case FloatType::kBf16:
      return finish_wide<DeviceBf16>(p, task, row, column, sums);
    case FloatType::kF32:
      return finish_wide<float>(p, task, row, column, sums);
  }
}
__device__ inline void finish_gated8(const LinearCudaParams& p, const LinearTask& task, int64_t row,
                                     int64_t column, const float* gates, const float* ups) {
  if (!finishes_wide(p, p.layout.n / 2, column)) {
    for (int i = 0; i < 8; ++i) finish_gated(p, task, row, column + i, gates[i], ups[i]);
    return;
  }
  switch (p.out_type) {
    case FloatType::kF16:
      return finish_gated_wide<DeviceF16>(p, task, row, column, gates, ups);
    case FloatType::kBf16:
      return finish_gated_wide<DeviceBf16>(p, task, row, column, gates, ups);
    case FloatType::kF32:
      return finish_gated_wide<float>(p, task, row, column, gates, ups);
  }
}

}  // namespace quire::ops
