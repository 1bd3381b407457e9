#pragma once
#include "ops/causal_conv1d/causal_conv1d_cuda.h"
#include "ops/gated_delta_rule/gated_delta_rule_cpu.h"

namespace quire::ops {

// All pointers are of the device. Inside a slot, a head's state is [Dv][Dk].
void gated_delta_rule_cuda(CudaStream stream, const GatedDeltaRuleParams& params,
                           const StateCudaBatch& batch);

}  // namespace quire::ops
