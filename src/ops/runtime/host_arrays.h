#pragma once
#include <functional>
#include <vector>

#include "ops/runtime/device.h"
#include "ops/runtime/kernel_primitive.h"

namespace quire::ops {

// Runs one kernel of a device with memory of its own on arrays that may be the host's: those are
// copied there, and outputs back, with a wait. For ops that are evaluated one by one, as tests do;
// a plan of kernels (kernel_graph.h) takes the device's arrays only. `alias` as in KernelSpec.
void run_with_host_arrays(Device& device, KernelInputs inputs, KernelOutputs outputs,
                          const std::vector<int>& alias,
                          const std::function<void(KernelInputs, KernelOutputs)>& run);

}  // namespace quire::ops
