#pragma once
#include <cstdint>
#include <limits>

#include "ops/runtime/device.h"

namespace quire::ops {

// The most that a device's kernels take of a model.
struct DeviceLimits {
  static constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

  const char* kernels = "kernels";  // for people: "kernels for NVIDIA GPUs"
  int64_t vocab = kAny;
  int64_t experts = kAny;         // of a layer
  int64_t chosen_experts = kAny;  // for a token
  int64_t head_dim = kAny;
};

DeviceLimits limits_of(const Device& device);
// Of a GPU that may be chosen: no device is made for that.
DeviceLimits cuda_limits();

}  // namespace quire::ops
