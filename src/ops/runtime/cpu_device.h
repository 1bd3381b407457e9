#pragma once
#include <memory>
#include <vector>

#include "ops/runtime/device.h"

namespace quire::ops {

// make_cpu_device() whose memory that stays, and pools, are spread over these NUMA nodes
// (base/numa.h); none: they are where the system puts them.
std::shared_ptr<Device> make_cpu_device(std::vector<int> nodes);

}  // namespace quire::ops
