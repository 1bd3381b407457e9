#pragma once
#include <cstddef>

#include "ops/linear/cuda/linear_cuda.h"

namespace quire::ops {

// The most experts, and experts of a token.
inline constexpr int64_t kMaxMoeCudaExperts = 4096, kMaxMoeCudaChoices = 256;

// All pointers are of the device. The host does not know how many rows an expert has.
struct MoeExpertsCudaParams {
  FloatType type = FloatType::kF32;  // of x, residual, shared and y
  int64_t rows = 0, hidden = 0, intermediate = 0, top_k = 0, num_experts = 0;
  CudaWeightLayout gate_up, down;                // of every expert
  const void* const* gate_up_weights = nullptr;  // [E]
  const void* const* down_weights = nullptr;     // [E]
  const float* const* gate_up_biases = nullptr;  // [E], or null
  const float* const* down_biases = nullptr;     // [E], or null
  Gate gate = {};
  bool weigh_input = false;             // as MoeExpertsOptions has it
  const void* x = nullptr;              // [T, hidden]
  const int32_t* experts = nullptr;     // [T, k]
  const float* weights = nullptr;       // [T, k]
  const void* shared = nullptr;         // [T, hidden], or null
  const float* shared_logit = nullptr;  // [T], or null: 1 instead of its sigmoid
  const void* residual = nullptr;       // [T, hidden], or null
  void* y = nullptr;                    // [T, hidden]
  void* scratch = nullptr;              // moe_experts_cuda_scratch_bytes, aligned to 16
};

size_t moe_experts_cuda_scratch_bytes(const MoeExpertsCudaParams& params);

// A token's experts are added in ascending order of their index. Returns the name of the products'
// kernels, as linear_cuda does.
const char* moe_experts_cuda(CudaStream stream, const MoeExpertsCudaParams& params);

}  // namespace quire::ops
