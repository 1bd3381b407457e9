#pragma once
#include <memory>

#include "ops/runtime/device.h"

namespace quire::ops {

// The GPU of this Mac; MLX's default device is it from now on. Throws std::runtime_error if there
// is none. Only in builds with Metal (has_metal.h).
std::shared_ptr<Device> make_apple_gpu();

}  // namespace quire::ops
