#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

// sum[tokens[i]] += weights[i] * y[i]; a token occurs once at most.
struct MoeScatterParams {
  int64_t width = 0;
  const int32_t* tokens = nullptr;  // [R]
  const float* weights = nullptr;   // [R]
  const float* y = nullptr;         // [R, width]
  float* sum = nullptr;             // [T, width]
};
void moe_scatter_cpu(const MoeScatterParams& params, int64_t begin, int64_t end);

// y[i] = weights[i] * x[tokens[i]], rounded to `type`.
struct MoeWeighParams {
  FloatType type = FloatType::kF32;  // of x and y
  int64_t width = 0;
  const int32_t* tokens = nullptr;  // [R]
  const float* weights = nullptr;   // [R]
  const void* x = nullptr;          // [T, width]
  void* y = nullptr;                // [R, width]
};
void moe_weigh_cpu(const MoeWeighParams& params, int64_t begin, int64_t end);

// y = sum + sigmoid(logit) * shared + residual, rounded to `type`.
struct MoeFinishParams {
  FloatType type = FloatType::kF32;  // of shared, residual and y
  int64_t width = 0;
  const float* sum = nullptr;      // [T, width]
  const void* shared = nullptr;    // [T, width], or null
  const float* logit = nullptr;    // [T], or null: 1 instead of its sigmoid
  const void* residual = nullptr;  // [T, width], or null
  void* y = nullptr;               // [T, width]
};
void moe_finish_cpu(const MoeFinishParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
