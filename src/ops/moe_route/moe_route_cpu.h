#pragma once
#include <cstdint>

namespace quire::ops {

struct MoeRouteParams {
  int64_t num_experts = 0, top_k = 0;
  bool normalise = false;
  const float* logits = nullptr;  // [T, E]
  int32_t* experts = nullptr;     // [T, k]
  float* weights = nullptr;       // [T, k]
};

// Rows [begin, end).
void moe_route_cpu(const MoeRouteParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
