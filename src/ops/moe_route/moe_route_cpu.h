#pragma once
#include "ops/moe_route/moe_route_options.h"

namespace quire::ops {

struct MoeRouteParams {
  int64_t num_experts = 0;
  MoeRouteOptions options = {};
  const float* logits = nullptr;        // [T, E]
  const float* correction = nullptr;    // [E], or null
  const float* expert_scale = nullptr;  // [E], or null
  int32_t* experts = nullptr;           // [T, k]
  float* weights = nullptr;             // [T, k]
};

// Floats of scratch that a thread needs.
inline int64_t moe_route_scratch(int64_t num_experts) { return 5 * num_experts; }

// Rows [begin, end).
void moe_route_cpu(const MoeRouteParams& params, int64_t begin, int64_t end, float* scratch);

}  // namespace quire::ops
