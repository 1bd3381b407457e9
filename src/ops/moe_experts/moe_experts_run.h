#pragma once
#include "ops/linear/linear_kernel.h"
#include "ops/moe_experts/moe_experts.h"

namespace quire::ops {

// The evaluated arrays of moe_experts().
struct MoeExpertsParams {
  FloatType type = FloatType::kF32;       // of x, residual, shared and y
  const LinearKernel* gate_up = nullptr;  // of all experts
  const LinearKernel* down = nullptr;
  Gate gate = {};
  bool weigh_input = false;
  int64_t rows = 0, hidden = 0, top_k = 0;
  const void* x = nullptr;              // [T, hidden]
  const int32_t* experts = nullptr;     // [T, k]
  const float* weights = nullptr;       // [T, k]
  const void* shared = nullptr;         // [T, hidden], or null
  const float* shared_logit = nullptr;  // [T], or null
  const void* residual = nullptr;       // [T, hidden], or null
  void* y = nullptr;                    // [T, hidden]
};

// Sorts the tokens by expert and runs each expert that has any on its rows.
void run_moe_experts(ThreadPool& pool, const std::vector<Expert>& experts,
                     const MoeExpertsParams& params);

// linear() with such a weight; rows, x and y are for the caller to set. With a gate if `gate`.
LinearParams expert_linear_params(const LinearWeight& w, mx::Dtype out_dtype, const Gate* gate);

}  // namespace quire::ops
